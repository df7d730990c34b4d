"""The replication protocol of one replica of an enode: elections and commitment of the log. Pure.

In: messages of replicas, disk events, proposals and the time. Out: actions (write, truncate, send). The proof is in
docs/replication.md. The package imports no other package, so that the product and the tests run the same code.
"""

"""Which bytes of the log are committed, and who leads: the replication protocol of one member of an enode. Pure.

In: what members say to each other, what the disk has done, proposals and the time. Out: what to write, cut, send.
docs/replication.md argues why it is right. It imports no other room, so the product and the tests run the same code.
"""

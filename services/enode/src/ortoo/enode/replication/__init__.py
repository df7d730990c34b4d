"""Replication of the log: the driver that runs the protocol over disk, network and clock.

In: messages of other replicas, events of the disk, proposals of name servers. Out: the actions of
`replication.protocol`, executed. `rpc` carries messages between replicas. `leadership` serves clients on top.
"""

"""Copies of an enode's log in other processes: byte for byte, by position.

In: the durable bytes of the log, and what replicas say they have. Out: how far answers may be given; a folder that a
store can be opened on. `rpc` carries both over the wire; `cluster` and `observe` tell of followers.
"""

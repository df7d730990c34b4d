"""What the enode offers on the wire, and the replica's end of it: decode, call the rooms below, encode.

In: requests of EnodeService and ReplicationService. Out: their answers. Only `app` and `replica` import it.
"""

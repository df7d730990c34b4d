"""Receiving: pops and pulls told frame by frame, leases renewed, messages settled, offsets kept.

In come the protocol's requests of consumers; out go its answers, frame by frame where the protocol says so.
`presence` and `rpc` may import this room.
"""

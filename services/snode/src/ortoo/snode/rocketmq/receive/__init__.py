"""Receives: pops and pulls answered frame by frame, renewal of leases, ack and nack, offsets.

It takes the protocol's requests of consumers and returns its answers, as streams where the protocol requires it.
`presence` and `rpc` may import this package.
"""

"""Receives: pops and pulls answered frame by frame, renewal of leases, ack and nack, offsets.

The package takes consumers' requests and returns answers, as streams where the protocol requires it. `presence` and
`rpc` may import it.
"""

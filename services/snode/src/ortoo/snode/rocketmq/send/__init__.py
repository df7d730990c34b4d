"""Sends, transactions and recalls of RocketMQ's clients.

In come the protocol's requests to send, to decide and to recall; out go its answers, when what they say is durable.
`presence` and `rpc` may import this room.
"""

"""Sends, transactions and recalls of RocketMQ's clients.

It takes the protocol's requests to send, to end transactions and to recall; it answers when the effect is durable.
`presence` and `rpc` may import this package.
"""

"""Sends, transactions and recalls of RocketMQ's clients.

The package takes requests to send, to end transactions and to recall, and answers when the effect is durable.
`presence` and `rpc` may import it.
"""

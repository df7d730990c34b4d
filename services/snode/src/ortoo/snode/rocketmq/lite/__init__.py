"""Lite topics: subscriptions of clients, the topics that store them, and pops over them.

The package takes subscriptions and pops of clients of lite topics, and returns leased messages. `send`, `receive` and
`presence` may import it.
"""

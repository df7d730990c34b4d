"""Lite topics: subscriptions of clients, the stored topics of lite topics, and pops over lite topics.

The package takes subscriptions and pops of clients of lite topics, and returns leased messages. `send`, `receive` and
`presence` may import it.
"""

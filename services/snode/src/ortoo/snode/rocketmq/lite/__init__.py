"""Lite topics: subscriptions of clients, the topics that store them, and pops over them.

It takes subscriptions and pops of clients of lite topics, and returns leased messages. `send`, `receive` and `presence`
may import this package.
"""

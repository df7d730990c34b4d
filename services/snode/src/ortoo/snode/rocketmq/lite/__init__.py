"""Lite topics: which client receives which, in which topics their messages lie, and pops over them.

In come subscriptions and pops of clients of lite topics; out go leased messages. `send`, `receive` and `presence`
may import this room.
"""

"""Sending: messages are batched, sealed and sent over one stream. Also transactions, and the routes of topics.

Used by `app`, `blocking`, and for queues of topics by `push`, `pull` and `admin`. It imports only `core`.
"""

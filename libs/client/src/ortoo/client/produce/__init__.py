"""Sending: messages are batched, sealed and sent over one stream. Also transactions, and the routes of topics.

`app` and `blocking` use this package; `push`, `pull` and `admin` use its queues of topics. It imports only `core`.
"""

"""Sending: messages in, sealed batches over one stream, receipts out; transactions, and the routes of topics.

For `app`, `blocking`, and whoever asks for a topic's queues: `push`, `pull`, `admin`. It imports `core` alone.
"""

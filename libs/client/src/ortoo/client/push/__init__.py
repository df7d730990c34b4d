"""Push consumers: whole batches come in over a session, what is done of them goes out.

For `app` and `blocking`. It imports `offsets`, `produce` (the queues of a topic) and `core`.
"""

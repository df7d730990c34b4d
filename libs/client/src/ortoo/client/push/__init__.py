"""Push consumers: whole batches arrive over a session, and acknowledgements are returned.

Used by `app` and `blocking`. It imports `offsets`, `produce` (the queues of a topic) and `core`.
"""

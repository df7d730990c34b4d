"""Push consumers: whole batches arrive over a session, and acknowledgements are returned.

`app` and `blocking` use this package. It imports `offsets`, `produce` (the queues of a topic) and `core`.
"""

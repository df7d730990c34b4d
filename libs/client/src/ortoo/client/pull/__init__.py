"""Pull consumers: group members that pull messages of their queues and commit offsets.

Used by `app` and `blocking`. It imports `sessions`, `offsets`, `produce` (the queues of a topic) and `core`.
"""

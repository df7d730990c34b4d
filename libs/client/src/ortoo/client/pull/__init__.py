"""Pull consumers: group members that pull messages of their queues and commit offsets.

`app` and `blocking` use this package. It imports `sessions`, `offsets`, `produce` (the queues of a topic) and `core`.
"""

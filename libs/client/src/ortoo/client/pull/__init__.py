"""Pull consumers: a member of a group with queues of its own; offsets go in, messages and commits come out.

For `app` and `blocking`. It imports `sessions`, `offsets`, `produce` (the queues of a topic) and `core`.
"""

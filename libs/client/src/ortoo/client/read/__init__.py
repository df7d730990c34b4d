"""Reads outside groups: ranges and tails of queues as batches, without locks or offsets.

Used by `app`, `admin`, and readers without a group, such as Spark's. It imports only `core`.
"""

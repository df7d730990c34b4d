"""Reads outside groups: ranges and tails of queues as batches, without locks or offsets.

`app`, `admin`, and readers without a group such as Spark's use this package, which imports only `core`.
"""

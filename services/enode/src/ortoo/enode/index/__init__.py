"""Indexes of the log: batches by queue and offset, messages by key and id. They are caches, rebuilt when missing.

It takes frames of the log, and returns rows, places and contents of segments. `reading`, `recovery` and the packages
above may import it.
"""

"""Delayed messages: stored aside, read into memory before they are due, and appended when they are due.

In: batches with delivery times, through `appends`, and recalls. Out: batches appended to their queues. `appends`
and `rpc` call `scheduler`. Retention calls `segment_rescue` before a segment is deleted.
"""

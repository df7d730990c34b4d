"""Delayed messages: stored in a queue of their own, read into memory before they are due, then appended.

In: batches with delivery times, through `appends`, and recalls. Out: batches appended to their queues. `appends`
and `rpc` call `scheduler`. Retention calls `segment_rescue` before a segment is deleted.
"""

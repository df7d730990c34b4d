"""Reads the log: takes an offset, returns whole batches, and wakes readers that wait at the end of a queue."""

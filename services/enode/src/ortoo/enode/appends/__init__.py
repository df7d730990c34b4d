"""Entry for batches: each is stored immediately, delayed, or deduplicated by the ids of its messages.

In: batches that producers send. Out: the results of the store. `pops` and `rpc` append through `router`. No package
below imports this one.
"""

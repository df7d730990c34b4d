"""Entry for batches: each is stored at once, delayed, or stored once by its deduplication id.

In: batches that producers send. Out: the results of the store. `pops` and `rpc` append through `router`. No package
below imports this one.
"""

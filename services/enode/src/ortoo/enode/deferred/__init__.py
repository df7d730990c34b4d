"""Messages that nobody may see yet: delayed ones and those of open transactions.

In: batches, by way of `intake`, and what becomes of transactions. Out: batches appended to their queues when their
time has come or their producer says so. `pops` sends copies through it; rpc asks it.
"""

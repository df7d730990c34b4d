"""Messages that are not visible yet: delayed ones and those of open transactions.

In: batches, through `intake`, and verdicts on transactions. Out: batches appended to their queues when they are due or
their transaction is committed. `pops` stores retry copies through it; rpc calls it.
"""

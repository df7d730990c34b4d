"""Reading outside groups: ranges and tails of queues as batches, without locks or offsets.

For `app`, `admin`, and readers that have no group, such as Spark's. It imports `core` alone.
"""

"""Transactions: half messages, stored in a queue of their own until commit or rollback.

In: batches of transactions and their outcomes. Out: committed batches appended to their queues, and checks of open
transactions, sent to producers. `rpc` calls `coordinator`. `settings` reads the schedule of checks.
"""

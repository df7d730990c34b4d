"""Transactions: half messages stored aside until their producer commits or rolls back.

In: batches of transactions and their outcomes. Out: committed batches appended to their queues, and checks of open
transactions for producers. `rpc` calls `coordinator`. `settings` reads the schedule of checks.
"""

"""Writes to topics: Arrow batches are stored as record batches before a task ends.

The data source and the jobs use this package.
"""

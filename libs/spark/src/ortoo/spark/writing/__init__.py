"""Writes to topics: Arrow batches are stored as record batches before a task ends. For data source and jobs."""

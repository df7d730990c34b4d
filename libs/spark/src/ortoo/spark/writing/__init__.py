"""Writing to topics: Arrow batches in, record batches stored before a task is done. For the data source and jobs."""

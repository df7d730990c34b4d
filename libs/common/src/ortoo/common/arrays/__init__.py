"""Record batches as numpy arrays: sealed batches in, columns, tables of rows and new batches out. For servers only."""

"""Record batches as numpy arrays: columns and rows of sealed batches, and new batches of them. For servers."""

"""Record batches as numpy arrays: columns and rows of sealed batches, and new batches made from rows. For servers."""

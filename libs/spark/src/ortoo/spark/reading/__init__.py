"""Reading topics: from options to ranges of offsets to Arrow batches."""

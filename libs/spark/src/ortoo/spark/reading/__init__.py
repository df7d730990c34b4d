"""Reading topics: options in, ranges of offsets and Arrow batches out. The data source imports it."""

"""Reads of topics: from options to ranges of offsets and Arrow batches. The data source imports it."""

"""Record batches as numpy arrays: what servers do with many messages at once. Clients do without it."""

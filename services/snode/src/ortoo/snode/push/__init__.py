"""Push sessions: credit and acknowledgements in, whole batches in order out, slow ones evicted."""

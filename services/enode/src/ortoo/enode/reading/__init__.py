"""Reading the log: an offset in, whole batches out; who waits at the end of a queue is woken here."""

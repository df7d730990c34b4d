"""The storage node: one log, and the queues that are folds over it."""

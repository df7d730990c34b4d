"""The storage node: one log, and the queues, whose state is computed from the log."""

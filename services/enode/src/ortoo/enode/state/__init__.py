"""The state: what follows from the log's frames, folded one after another."""

"""The tables of the state, folded from the log's frames. Pure: no clock, no disk, no randomness."""

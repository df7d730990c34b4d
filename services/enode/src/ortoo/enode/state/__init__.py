"""The state machine: tables folded from the log's frames, one after another. Pure.

In: state changes and the headers of frames. Out: the tables' contents, and checkpoints. The packages above read the
tables; only the committer and recovery fold.
"""

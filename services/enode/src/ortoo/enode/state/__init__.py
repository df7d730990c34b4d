"""The state: what follows from the log's frames, folded one after another. Pure.

In: state changes and the headers of frames. Out: what the tables know, and checkpoints. The rooms above read the
tables; only the committer and recovery fold.
"""

"""The log: frames in segments, how they get there, how they are found again."""

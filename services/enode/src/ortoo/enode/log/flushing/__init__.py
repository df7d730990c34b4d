"""Flushes: groups of frames that are written together, the writing threads, and the entries until their commit."""

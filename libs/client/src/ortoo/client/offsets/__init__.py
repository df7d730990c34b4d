"""Offsets of consumers: where they are stored, where a queue starts, and lost messages.

Used by `push`, `pull` and `sessions`. It imports only `core`.
"""

"""Offsets of consumers: where they are stored, where a queue starts, and lost messages.

`push`, `pull` and `sessions` use this package, which imports only `core`.
"""

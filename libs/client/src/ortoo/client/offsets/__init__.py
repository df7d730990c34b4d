"""Offsets of consumers: where they are stored, and where a queue starts. Also counts messages lost by damage.

`push`, `pull` and `sessions` use this package, which imports only `core`.
"""

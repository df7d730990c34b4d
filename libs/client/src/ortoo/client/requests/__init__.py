"""Requests that wait for replies, and replies to received requests.

`produce`, `sessions` and the consumers use this package, which imports only `core`.
"""

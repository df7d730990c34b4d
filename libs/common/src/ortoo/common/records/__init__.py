"""Encoding of messages into sealed record batches of columns, and decoding. No gRPC, no protobuf, no event loop.

All code that makes or reads messages imports it.
"""

"""Messages in columns: messages in, sealed record batches out, and back. No gRPC, no protobuf, no event loop.

Everybody who makes or reads messages imports it.
"""

"""The use of gRPC by every role: channels, servers, statuses, and conversions of values and messages.

The `rpc` packages, the stubs of clients and the apps import it.
"""

"""gRPC as every role uses it: handlers and values in; channels, servers, statuses and messages out.

What speaks on the wire imports it: the rpc rooms, the stubs of clients, the apps.
"""

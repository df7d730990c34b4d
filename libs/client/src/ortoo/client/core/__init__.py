"""The base of all packages of the client: calls, sessions, and plain values (queues, filters, batches).

All other packages of the client may import this package, which imports only `tracing`. Its module `wire` reads and
writes protobuf.
"""

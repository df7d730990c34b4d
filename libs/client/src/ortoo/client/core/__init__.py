"""The base of all packages of the client: calls, sessions, and plain values (queues, filters, batches).

All other packages of the client may import it, and it imports none of them. `wire` reads and writes protobuf.
"""

"""The queue front: unary calls taken from gRPC's core many at a wake-up, without grpc.aio's steps for each.

In come calls of the methods that a server names as hot; out go calls of the same handlers, behind the same
interceptors. `grpc.server` and `grpc.call_memory` import it.
"""

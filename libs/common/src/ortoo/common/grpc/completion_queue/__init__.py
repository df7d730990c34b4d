"""The queue front: takes many unary calls from gRPC's core at each wake-up, without grpc.aio's steps for each call.

It serves the methods that a server names as hot, with the handlers and layers that grpc.aio would use. `grpc.server`
and `grpc.layers` import it.
"""

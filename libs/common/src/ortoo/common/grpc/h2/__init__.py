"""gRPC's wire over HTTP/2 by libnghttp2, on the event loop of the process: the server of the transport `h2`.

It serves the handlers and layers that grpc.aio would serve, without threads of its own. Only `engine` imports ngh2.
"""

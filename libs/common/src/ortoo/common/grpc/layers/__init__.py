"""The layers around every call of a server: each is entered before the handler and left after it.

They serve calls of grpc.aio and of the queue front alike, and return answers or refusals.
"""

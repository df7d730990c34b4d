"""What stands around every call of a server: layers, each entered before the handler and left after it.

In come calls, whether grpc.aio or the queue front took them; out go their answers, or refusals.
"""

"""Limits on what a peer may send or hold before its request is decoded.

The input is the raw bytes of a request, or the connections of a server. The output is a refusal, or the end of a
connection. The packages around it (`grpc.layers`, `grpc.server`) apply the limits.
"""

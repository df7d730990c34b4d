"""Push sessions: they receive credit and acknowledgements, deliver whole batches in order, and evict slow consumers.

The gRPC services and the package `clients` import this package.
"""

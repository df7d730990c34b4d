"""Discovery of the cluster's processes: their settings and addresses, and a lease at each name server.

The services and telemetry use it; it does not depend on gRPC.
"""

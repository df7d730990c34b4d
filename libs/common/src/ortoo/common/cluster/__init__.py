"""Discovery of the cluster's processes: their settings and addresses, the name servers, and a lease at each of these.

The services and telemetry use it; it does not depend on gRPC.
"""

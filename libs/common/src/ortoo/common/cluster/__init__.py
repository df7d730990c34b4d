"""How processes find one another: settings and addresses in; lists of name servers and a lease at each of them out.

The services use it, and telemetry; it knows no gRPC.
"""

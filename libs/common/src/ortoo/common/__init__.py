"""What every part of Ortoo shares: a module is here only when two distributions need it."""

import os

# gRPC reads this when it is imported. Else it writes a line of its own for each stranger whose handshake fails, with
# which anybody who reaches a port could fill the disk with logs.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

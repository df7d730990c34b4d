"""The shared parts of Ortoo. A module is here only when two distributions need it."""

import os

# gRPC reads this when it is imported. Otherwise it logs a line for each failed handshake, so that any unauthenticated
# client could fill the disk with logs.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

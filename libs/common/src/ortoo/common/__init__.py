"""The shared parts of Ortoo. A module is here only when two distributions need it."""

import os

# gRPC reads this when it is imported. Otherwise it logs a line for each failed handshake, so that any unauthenticated
# client could fill the disk with logs.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# gRPC reads this when it is imported. Its fork support starts threads in each forked child of a process that used
# grpc.aio. One of four such children crashes, even if the child never uses gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

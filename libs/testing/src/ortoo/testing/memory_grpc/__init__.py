"""gRPC in memory: grpc.aio's calls and handlers, between the nodes of one event loop, without sockets and threads.

Enters: servicers and stubs as generated, and a `Network` that says who reaches whom, how long a packet takes, and
breaks connections. Leaves: `MemoryTransport`, an `ortoo.common.transport.Transport`, and `Node`, whose kill ends its
half of every conversation. Messages travel serialised. The order of everything follows from the loop and the network
alone: the same answers, the same run.

The classes of calls are grpc.aio's own, with their habits; what is written anew is the core below them and the whole
server. `tests/conformance` holds the two against each other, and docs/testing/memory-grpc.md says where they differ.

Tests and benchmarks import it, and simulations are built on it; production never does.
"""

from ortoo.testing.memory_grpc.connection import Connection
from ortoo.testing.memory_grpc.network import InstantNetwork, Network
from ortoo.testing.memory_grpc.node import NODE, Node
from ortoo.testing.memory_grpc.packet import Packet
from ortoo.testing.memory_grpc.transport import MemoryTransport

__all__ = ["NODE", "Connection", "InstantNetwork", "MemoryTransport", "Network", "Node", "Packet"]

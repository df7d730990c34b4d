"""gRPC in memory: grpc.aio's calls and handlers, between the nodes of one event loop, without sockets and threads.

Enters: generated servicers and stubs, and a `Network` that decides reachability and delays, and breaks connections.
Leaves: `MemoryTransport`, a `Transport` of `ortoo.common.grpc.transport`, and `Node`, whose kill ends its half of every
conversation. Messages travel serialised. The order of events depends on the loop and the network alone: the same
answers give the same run.

The classes of calls are grpc.aio's own, with their behaviour. The core below them and the whole server are
reimplemented. `tests/conformance` compares the two, and docs/testing/memory-grpc.md lists the differences.

For tests, benchmarks and simulations; production never imports it.
"""

from ortoo.testing.memory_grpc.connection import MemoryConnection
from ortoo.testing.memory_grpc.network import InstantNetwork, Network
from ortoo.testing.memory_grpc.node import NODE, Node
from ortoo.testing.memory_grpc.packet import Packet
from ortoo.testing.memory_grpc.transport import MemoryTransport

__all__ = ["NODE", "InstantNetwork", "MemoryConnection", "MemoryTransport", "Network", "Node", "Packet"]

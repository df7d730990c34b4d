"""The interface of a network between nodes: it decides reachability and delays, and breaks connections."""

from typing import TYPE_CHECKING, Protocol

from ortoo.testing.memory_grpc.node import Node
from ortoo.testing.memory_grpc.packet import Packet

if TYPE_CHECKING:
    from ortoo.testing.memory_grpc.connection import MemoryConnection


class Network(Protocol):
    """Asked for every connection and packet. A run depends only on its answers and the loop's order.

    Later faults are injected into the connection itself: see `Connection.reset`, `hold`, `release`. A slow reader is
    one whose packets with `read_bytes` take long.
    """

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        """Seconds until the server's answer to a new connection arrives; None when there will be none.

        `target` is the node that listens at host:port; None when none does or it belongs to no node. Without a server
        the answer is a refusal. Errors: ConnectionRefusedError, when there is a server and it is out of reach.
        """

    def connected(self, connection: "MemoryConnection") -> None:
        """A connection was made; a network that breaks it later keeps a reference."""

    def delay_s(self, connection: "MemoryConnection", packet: Packet, *, to_server: bool) -> float:
        """The delay of a packet. Packets of one call stay in order; a break here loses this packet as well."""

    def delivered(self, connection: "MemoryConnection", packet: Packet, *, to_server: bool) -> None:
        """A packet has arrived, and is given to the receiver now."""


class InstantNetwork:
    """The default: all nodes are reachable without delay."""

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        """At once."""
        return 0.0

    def connected(self, connection: "MemoryConnection") -> None:
        """Ignored: no faults are injected."""

    def delay_s(self, connection: "MemoryConnection", packet: Packet, *, to_server: bool) -> float:
        """At once."""
        return 0.0

    def delivered(self, connection: "MemoryConnection", packet: Packet, *, to_server: bool) -> None:
        """Ignored."""

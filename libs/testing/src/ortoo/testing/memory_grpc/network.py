"""The seam for whatever lies between two nodes: it says who reaches whom and how long that takes, and breaks things."""

from typing import TYPE_CHECKING, Protocol

from ortoo.testing.memory_grpc.node import Node
from ortoo.testing.memory_grpc.packet import Packet

if TYPE_CHECKING:
    from ortoo.testing.memory_grpc.connection import Connection


class Network(Protocol):
    """Asked for every connection and packet. Its answers and the loop's order are all that a run depends on.

    What happens to a connection later is told to the connection itself: see `Connection.reset`, `hold`, `release`.
    A slow reader is one whose packets with `read_bytes` take long.
    """

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        """In how many seconds the server's answer to a new connection is here; None when there will be none.

        `target` is the node that listens at host:port; None when none does or it belongs to no node. Without a
        server the answer is a refusal. Errors: ConnectionRefusedError, when there is a server and it is out of reach.
        """

    def connected(self, connection: "Connection") -> None:
        """A connection is there; whoever wants to break it later keeps it."""

    def delay_s(self, connection: "Connection", packet: Packet, *, to_server: bool) -> float:
        """How long a packet takes. Packets of one call stay in order; a break here loses this packet as well."""

    def delivered(self, connection: "Connection", packet: Packet, *, to_server: bool) -> None:
        """A packet is there, and is given to the receiver now."""


class InstantNetwork:
    """The default: everybody reaches everybody at once."""

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        """At once."""
        return 0.0

    def connected(self, connection: "Connection") -> None:
        """Nothing is ever done to it."""

    def delay_s(self, connection: "Connection", packet: Packet, *, to_server: bool) -> float:
        """At once."""
        return 0.0

    def delivered(self, connection: "Connection", packet: Packet, *, to_server: bool) -> None:
        """Nothing is noted."""

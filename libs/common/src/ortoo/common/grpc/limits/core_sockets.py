"""The core's counters for each connection of a server (channelz): streams that the peer opened and reset.

Only this file uses private names of grpcio's channelz.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from grpc._cython import cygrpc

from ortoo.common.grpc.limits.connections import Peer, peer_of

OPTIONS: Final = (("grpc.enable_channelz", 1),)
PAGE = 500
"""Number of connections of one request to channelz."""


@dataclass(frozen=True, slots=True)
class CoreSocket:
    """A connection with the core's number for it."""

    number: int
    peer: Peer


@dataclass(frozen=True, slots=True)
class Resets:
    """The number of a peer's stream resets, and of its messages."""

    count: int
    messages: int


class CoreSockets:
    """The connections of one server."""

    def __init__(self, server: int) -> None:
        """`server` is the core's number of the server."""
        self._server = server

    @classmethod
    def of_newest(cls) -> Self | None:
        """The connections of the newest server of this process; None if the core does not report that server."""
        newest, start = 0, 0
        try:
            while True:
                page = json.loads(cygrpc.channelz_get_servers(start))
                newest = max([newest, *(int(one["ref"]["serverId"]) for one in page.get("server", ()))])
                if page.get("end", True) or not page.get("server"):
                    return cls(newest) if newest else None
                start = newest + 1
        except (AttributeError, KeyError, ValueError):
            return None

    def open(self) -> list[CoreSocket]:
        """The established connections."""
        found: list[CoreSocket] = []
        start = 0
        while True:
            page = json.loads(cygrpc.channelz_get_server_sockets(self._server, start, PAGE))
            refs: list[dict[str, Any]] = page.get("socketRef", [])
            for ref in refs:
                # An example of a name is "chttp2 ipv4:127.0.0.1:4711".
                peer = peer_of(str(ref.get("name", "")).rpartition(" ")[2])
                if peer is not None:
                    found.append(CoreSocket(int(ref["socketId"]), peer))
            if page.get("end", True) or not refs:
                return found
            start = max(int(ref["socketId"]) for ref in refs) + 1

    def resets(self, socket: CoreSocket) -> Resets:
        """The counts of a connection's peer until now; zeros for a closed connection."""
        try:
            data = json.loads(cygrpc.channelz_get_socket(socket.number))["socket"]["data"]
        except (KeyError, ValueError):
            return Resets(0, 0)
        return Resets(int(data.get("streamsFailed", 0)), int(data.get("messagesReceived", 0)))

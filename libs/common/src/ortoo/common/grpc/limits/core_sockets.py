"""The core's counters for each connection of a server (channelz): streams that the peer opened and reset."""

from dataclasses import dataclass
from typing import Any, Final, Self

from grpc_channelz.v1 import channelz_pb2 as pb
from grpc_channelz.v1.channelz import ChannelzServicer

from ortoo.common.grpc.limits.connection_limits import Resets
from ortoo.common.grpc.limits.connections import Peer, peer_of

SOCKETS_A_LOOK: Final = 100
"""Number of connections that one check reads; each costs 0.17 milliseconds."""


@dataclass(frozen=True, slots=True)
class CoreSocket:
    """A connection with the core's number for it."""

    number: int
    peer: Peer


class CoreSockets:
    """The connections of one server."""

    def __init__(self, server: int) -> None:
        """`server` is the core's number of the server."""
        self._server = server
        self._start = 0

    @classmethod
    def of_newest(cls) -> Self | None:
        """The connections of the newest server of this process; None if the core does not report that server."""
        newest, start = 0, 0
        while (page := _asked("GetServers", pb.GetServersRequest(start_server_id=start))) and page.server:
            newest = max(one.ref.server_id for one in page.server)
            start = newest + 1
        return cls(newest) if newest else None

    def next(self) -> tuple[list[CoreSocket], bool]:
        """The next established connections, and whether they are the last ones; then it begins again."""
        request = pb.GetServerSocketsRequest(
            server_id=self._server, start_socket_id=self._start, max_results=SOCKETS_A_LOOK
        )
        page = _asked("GetServerSockets", request)
        is_last = page is None or page.end or not page.socket_ref
        self._start = 0 if is_last else max(ref.socket_id for ref in page.socket_ref) + 1
        # An example of a name is "chttp2 ipv4:127.0.0.1:4711".
        found = [(ref.socket_id, peer_of(ref.name.rpartition(" ")[2])) for ref in (page.socket_ref if page else ())]
        return [CoreSocket(number, peer) for number, peer in found if peer is not None], is_last

    def resets(self, socket: CoreSocket) -> Resets:
        """The counts of a connection's peer until now; zeros for a closed connection."""
        found = _asked("GetSocket", pb.GetSocketRequest(socket_id=socket.number))
        data = pb.SocketData() if found is None else found.socket.data
        return Resets(data.streams_failed, data.messages_received)


class _Context:
    """The context of a call of channelz, which is made without a server."""

    def set_code(self, code: object) -> None:
        """Does nothing, because the answer of a failed call is None."""

    def set_details(self, details: str) -> None:
        """Does nothing."""


def _asked(method: str, request: Any) -> Any:
    """The answer of channelz; None if the core does not know the subject."""
    return getattr(ChannelzServicer, method)(request, _Context())

"""The addresses of a network in memory: the listening servers, and how channels find them."""

import ssl
from collections.abc import Sequence
from typing import Self, cast

import grpc

from ortoo.common.grpc.transport import Options
from ortoo.testing.memory_grpc.channel import CoreChannel, MemoryChannel
from ortoo.testing.memory_grpc.connection import ConnectionEnd, MemoryConnection
from ortoo.testing.memory_grpc.network import InstantNetwork, Network
from ortoo.testing.memory_grpc.node import Endpoint
from ortoo.testing.memory_grpc.server import CoreServer, MemoryServer

WINDOW_BYTES = 65_535
"""HTTP/2's initial window. The real core grows it with throughput, to some 4 MiB on one machine."""
PORT_FIRST = 20_001

_EVERYWHERE = ("0.0.0.0", "[::]", "::", "*", "")
_HERE = ("localhost", "[::1]", "::1")


class MemoryTransport:
    """An `ortoo.common.grpc.transport.Transport` without sockets, threads and a clock of its own.

    A channel or server created in the context of a `Node` belongs to that node. Use it with
    `ortoo.common.grpc.transport.using_transport`, or call `channel` and `server`.
    """

    has_sockets = False
    has_core = False

    def __init__(self, network: Network | None = None, *, window_bytes: int = WINDOW_BYTES) -> None:
        """`network` decides reachability and delays; without one all is reachable at once."""
        self.network: Network = network or InstantNetwork()
        self._window_bytes = window_bytes
        self._servers: dict[str, CoreServer] = {}
        self._connections = 0
        self._last_port = PORT_FIRST - 1

    def on_wire(self, wire: str) -> Self:
        """Returns itself, because it has no wire."""
        return self

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> grpc.aio.Channel:
        """A channel to host:port; it connects when it is used."""
        core = CoreChannel(self, address, options, self._window_bytes)
        return cast("grpc.aio.Channel", MemoryChannel(core, interceptors))

    def with_streams(
        self, channel: grpc.aio.Channel, address: str, options: Options = (), tls: ssl.SSLContext | None = None
    ) -> grpc.aio.Channel:
        """Returns `channel`."""
        return channel

    def server(
        self,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        options: Options = (),
        maximum_concurrent_rpcs: int | None = None,
    ) -> grpc.aio.Server:
        """A server that does not listen yet; the first interceptor is the outermost."""
        core = CoreServer(self, interceptors, options, maximum_concurrent_rpcs, self._window_bytes)
        return cast("grpc.aio.Server", MemoryServer(core))

    # Called by servers.

    def listen(self, address: str, server: CoreServer) -> int:
        """Take host:port, any free one for port 0; the port, or 0 when it is in use."""
        host, _, port = address.rpartition(":")
        number = int(port or 0) or self._free_port(host)
        wanted = _key(host, number)
        if wanted in self._servers:
            return 0
        self._servers[wanted] = server
        return number

    def close(self, server: CoreServer) -> None:
        """Release all addresses."""
        for key in [key for key, other in self._servers.items() if other is server]:
            del self._servers[key]

    # Called by channels.

    def answers_in_s(self, source: Endpoint, address: str) -> float | None:
        """Seconds until the server's answer is known; None if it never is. Errors: ConnectionRefusedError."""
        server = self._find(address)
        return self.network.connecting(source.node, address, server.endpoint.node if server else None)

    def connect(self, address: str, client: ConnectionEnd) -> MemoryConnection:
        """Connect at once. Errors: ConnectionRefusedError."""
        server = self._find(address)
        if server is None or not server.accepts:
            raise ConnectionRefusedError(address)
        self._connections += 1
        connection = MemoryConnection(self.network, address, self._connections, client, server.side(), server.accept)
        server.connected(connection)
        self.network.connected(connection)
        return connection

    def _find(self, address: str) -> CoreServer | None:
        host, _, port = address.removeprefix("dns:").removeprefix("///").removeprefix("ipv4:").rpartition(":")
        return self._servers.get(_key(host, int(port))) or self._servers.get(_key("", int(port)))

    def _free_port(self, host: str) -> int:
        self._last_port += 1
        while _key(host, self._last_port) in self._servers:
            self._last_port += 1
        return self._last_port


def _key(host: str, port: int) -> str:
    if host in _EVERYWHERE:
        return f"*:{port}"
    return f"{'127.0.0.1' if host in _HERE else host}:{port}"

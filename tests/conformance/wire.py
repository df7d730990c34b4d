"""The same handlers and callers on real sockets and in memory: what the cases of this folder are written against."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc

from ortoo.common.background import Background
from ortoo.common.transport import SocketTransport, Transport
from ortoo.testing.memory_grpc import Connection, InstantNetwork, MemoryTransport, Node

Options = Sequence[tuple[str, int]]
T = TypeVar("T")

SERVICE = "conformance.Service"
BLOCKED_S = 0.1
"""How long something may take that is said to wait. That it happens later is seen by what happens then."""


class Wire(Protocol):
    """One of the two."""

    name: str
    transport: Transport
    """For what makes its channels and servers itself."""

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        """A server."""

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> Any:
        """A channel; without serializers its calls take and give bytes, which the types of grpc.aio do not know."""

    async def path_to(self, address: str) -> "Path":
        """A way to the server that can be broken."""

    def silent_address(self) -> str:
        """Where connections are neither taken nor refused."""

    async def close(self) -> None:
        """Leave nothing behind."""


class Path(Protocol):
    """A way to a server."""

    @property
    def address(self) -> str:
        """For channels."""

    def reset(self) -> None:
        """Break all connections; new ones may be made."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server and a channel to it."""

    wire: Wire
    server: grpc.aio.Server
    address: str
    channel: Any

    def call(self, method: str, request: bytes = b"", **options: Any) -> Any:
        """One request, one answer."""
        return self.channel.unary_unary(path(method))(request, **options)

    def answers(self, method: str, request: bytes = b"", **options: Any) -> Any:
        """One request, many answers."""
        return self.channel.unary_stream(path(method))(request, **options)

    def requests(self, method: str, requests: Any = None, **options: Any) -> Any:
        """Many requests, one answer."""
        return self.channel.stream_unary(path(method))(requests, **options)

    def both(self, method: str, requests: Any = None, **options: Any) -> Any:
        """Many requests, many answers."""
        return self.channel.stream_stream(path(method))(requests, **options)


def path(method: str) -> str:
    """The full name of a method of the service here."""
    return f"/{SERVICE}/{method}"


class Methods(grpc.GenericRpcHandler):
    """Handlers by name, of messages that are bytes."""

    def __init__(self, handlers: Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]) -> None:
        self._handlers = {path(name): handler for name, handler in handlers.items()}

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._handlers.get(details.method)


def unary(handle: Any) -> Any:
    """A handler of one request with one answer."""
    return grpc.unary_unary_rpc_method_handler(handle)


def answering(handle: Any) -> Any:
    """A handler of one request with many answers."""
    return grpc.unary_stream_rpc_method_handler(handle)


def requesting(handle: Any) -> Any:
    """A handler of many requests with one answer."""
    return grpc.stream_unary_rpc_method_handler(handle)


def conversing(handle: Any) -> Any:
    """A handler of many requests with many answers."""
    return grpc.stream_stream_rpc_method_handler(handle)


@contextlib.asynccontextmanager
async def serving(
    wire: Wire,
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    options: Options = (),
    channel_options: Options = (),
    calls_max: int | None = None,
    **handlers: Any,
) -> AsyncIterator[Served]:
    """Serve these handlers, by method name."""
    server = wire.server(interceptors, options, calls_max)
    server.add_generic_rpc_handlers((Methods(handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    channel = wire.channel(address, channel_options)
    try:
        yield Served(wire, server, address, channel)
    finally:
        await channel.close()
        await server.stop(None)


async def failure(awaited: Awaitable[object]) -> grpc.aio.AioRpcError:
    """The status that a call ends with."""
    try:
        answer = await awaited
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"the call went well: {answer!r}")


async def waits(task: "asyncio.Task[Any]") -> bool:
    """Whether a task has still not ended after a while."""
    done, _ = await asyncio.wait({task}, timeout=BLOCKED_S)
    return not done


async def turns() -> AsyncIterator[None]:
    """One turn after another for whoever waits for something that nobody tells."""
    loop = asyncio.get_running_loop()
    while True:
        turned = loop.create_future()
        loop.call_later(0.002, turned.set_result, None)
        await turned
        yield


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    async for _ in turns():
        if condition():
            return


class SocketWire:
    """grpc.aio on real sockets of this machine."""

    name = "sockets"

    def __init__(self, background: Background) -> None:
        self.transport: Transport = SocketTransport()
        self._background = background
        self._silent: list[socket.socket] = []
        self._relays: list[Relay] = []

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        return grpc.aio.server(
            interceptors=list(interceptors), options=list(options), maximum_concurrent_rpcs=calls_max
        )

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> Any:
        alone = ("grpc.use_local_subchannel_pool", 1)
        return grpc.aio.insecure_channel(address, [*options, alone], interceptors=list(interceptors))

    async def path_to(self, address: str) -> "Relay":
        relay = Relay(address, self._background)
        await relay.open()
        self._relays.append(relay)
        return relay

    def silent_address(self) -> str:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self._silent.append(listener)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    async def close(self) -> None:
        for listener in self._silent:
            listener.close()
        for relay in self._relays:
            await relay.close()


class Relay:
    """A TCP relay that can reset its connections."""

    def __init__(self, target: str, background: Background) -> None:
        self.address = ""
        self._target = target
        self._background = background
        self._server: asyncio.Server
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def reset(self) -> None:
        """Send RST in both directions."""
        writers, self._writers = self._writers, []
        for writer in writers:
            if writer.is_closing():
                continue
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def close(self) -> None:
        """End everything."""
        self.reset()
        self._server.close()
        await self._server.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        there, onward = await asyncio.open_connection(host, int(port))
        self._writers += writer, onward
        self._background.spawn("up", _pump(reader, onward))
        self._background.spawn("down", _pump(there, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


class MemoryWire:
    """The transport in memory."""

    name = "memory"

    def __init__(self) -> None:
        self._network = _Breakable()
        self._memory = MemoryTransport(self._network)
        self.transport: Transport = self._memory

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        return self._memory.server(interceptors, options, calls_max)

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> Any:
        return self._memory.channel(address, options, interceptors)

    async def path_to(self, address: str) -> "_MemoryPath":
        return _MemoryPath(address, self._network)

    def silent_address(self) -> str:
        return _Breakable.SILENT

    async def close(self) -> None:
        pass


class _Breakable(InstantNetwork):
    SILENT = "10.0.0.1:80"

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        return None if address == self.SILENT else 0.0

    def connected(self, connection: Connection) -> None:
        self.connections.append(connection)


@dataclass(frozen=True, slots=True)
class _MemoryPath:
    address: str
    network: _Breakable

    def reset(self) -> None:
        connections, self.network.connections[:] = tuple(self.network.connections), []
        for connection in connections:
            connection.reset()

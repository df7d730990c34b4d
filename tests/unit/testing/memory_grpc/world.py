"""A loop whose time leaps, a network that does as it is told, and handlers to call: for tests of gRPC in memory."""

import asyncio
import contextlib
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import grpc

from ortoo.testing.memory_grpc import MemoryConnection, MemoryTransport, Node, Packet

T = TypeVar("T")


class _Leaping(selectors.DefaultSelector):
    """Adds to the time instead of waiting."""

    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            self.now_s += max(0.0, timeout)
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """An ordinary loop on which waiting takes no time."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now_s


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on such a loop."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(main)


class ToldNetwork:
    """Takes each packet as long as `delay` says, keeps the connections, and notes what arrives."""

    def __init__(self, delay: Callable[[Packet, bool], float] = lambda packet, to_server: 0.0) -> None:
        self.delay = delay
        self.refuses = False
        self.is_silent = False
        self.connections: list[MemoryConnection] = []
        self.trace: list[str] = []

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        if self.refuses:
            raise ConnectionRefusedError(address)
        return None if self.is_silent else 0.0

    def connected(self, connection: MemoryConnection) -> None:
        self.connections.append(connection)

    def delay_s(self, connection: MemoryConnection, packet: Packet, *, to_server: bool) -> float:
        return self.delay(packet, to_server)

    def delivered(self, connection: MemoryConnection, packet: Packet, *, to_server: bool) -> None:
        now_s = asyncio.get_running_loop().time() - _Leaping.now_s
        way = "up" if to_server else "down"
        self.trace.append(f"{now_s:.3f} {connection.number} {way} {packet.method} {packet.message!r} {packet.status}")


def methods(**handlers: Any) -> grpc.GenericRpcHandler:
    """Handlers by name, of messages that are bytes: /world.S/name."""
    return grpc.method_handlers_generic_handler("world.S", handlers)


@contextlib.asynccontextmanager
async def served(
    transport: MemoryTransport, node: Node | None, handlers: Mapping[str, Any], **how: Any
) -> AsyncIterator[str]:
    """An address where `node` serves the handlers; nothing is stopped of a node that was killed meanwhile."""

    async def start() -> tuple[grpc.aio.Server, str]:
        server = transport.server(**how)
        server.add_generic_rpc_handlers((methods(**handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"

    server, address = await in_node(node, start())
    try:
        yield address
    finally:
        if node is None or node.is_alive:
            await server.stop(None)


def in_node(node: Node | None, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """A task of a node."""
    loop = asyncio.get_running_loop()
    return loop.create_task(work) if node is None else loop.create_task(work, context=node.context.copy())


async def channel_of(transport: MemoryTransport, node: Node | None, address: str, **how: Any) -> Any:
    """A channel that belongs to a node."""

    async def make() -> grpc.aio.Channel:
        return transport.channel(address, **how)

    return await in_node(node, make())


async def code_of(call: Any) -> str:
    """The name of the status that a call ends with."""
    return str((await call.code()).name)


KEEPALIVE = (("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000))


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def echo_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


HANDLERS: dict[str, Any] = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "All": grpc.stream_stream_rpc_method_handler(echo_all),
}


def echoed(channel: Any, request: bytes = b"", **options: Any) -> Any:
    """A unary call."""
    return channel.unary_unary("/world.S/Echo")(request, **options)


def conversation(channel: Any, **options: Any) -> Any:
    """A stream."""
    return channel.stream_stream("/world.S/All")(**options)

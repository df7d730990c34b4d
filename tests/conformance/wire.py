"""The same handlers and callers on real sockets and in memory; the cases of this folder use this interface."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc

from ortoo.common.grpc.transport import Transport

Options = Sequence[tuple[str, int]]
T = TypeVar("T")

SERVICE = "conformance.Service"
KINDS = ("call", "answers", "requests", "both")
"""The four kinds of calls, which are methods of `Served`."""
BLOCKED_S = 0.1
"""How long an operation is watched before it counts as waiting. Later steps of the test prove that it completes."""


class Wire(Protocol):
    """One of the two transports."""

    name: str
    transport: Transport
    """For code that makes its own channels and servers."""

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        """A server."""

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> Any:
        """A channel; without serializers its calls take and return bytes, which grpc.aio's types do not express."""

    async def way_to(self, address: str) -> "Way":
        """A breakable connection to the server."""

    def silent_address(self) -> str:
        """An address where connections are neither accepted nor refused."""

    async def doomed(self) -> "Doomed":
        """A server in a process of its own, which answers Stream once and then waits."""

    async def close(self) -> None:
        """Release all resources."""


class Way(Protocol):
    """A breakable connection to a server."""

    @property
    def address(self) -> str:
        """The address for channels."""

    def reset(self) -> None:
        """Break all connections; new ones may be opened."""


class Doomed(Protocol):
    """A server that is killed later."""

    @property
    def address(self) -> str:
        """The address for channels."""

    def kill(self) -> None:
        """Kill its process."""


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
    """Handlers by name; their messages are bytes."""

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
    """The status that a call fails with."""
    try:
        answer = await awaited
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"the call went well: {answer!r}")


async def waits(task: "asyncio.Task[Any]") -> bool:
    """Whether a task has not ended after `BLOCKED_S`."""
    done, _ = await asyncio.wait({task}, timeout=BLOCKED_S)
    return not done


async def turns() -> AsyncIterator[None]:
    """Yield to the event loop once an iteration, to wait for a condition without a notification."""
    loop = asyncio.get_running_loop()
    while True:
        turned = loop.create_future()
        loop.call_later(0.002, turned.set_result, None)
        await turned
        yield


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that has no notification."""
    async for _ in turns():
        if condition():
            return


def begun(served: Served, kind: str, **options: Any) -> Any:
    """Start a call of this kind, to a method of the same name."""
    return getattr(served, kind)(kind, **options)


async def result_of(call: Any, kind: str) -> Any:
    """The result that its caller waits for."""
    return await call if kind in ("call", "requests") else await call.read()

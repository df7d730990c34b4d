"""A server: grpc.aio's own class above a core that listens in memory."""

import asyncio
import enum
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
from grpc.aio._server import Server

from ortoo.common.logs.logger import get_logger
from ortoo.testing import log_events
from ortoo.testing.memory_grpc.call_end import ChannelLimits
from ortoo.testing.memory_grpc.connection import UNAVAILABLE, CallStream, ConnectionEnd, MemoryConnection
from ortoo.testing.memory_grpc.node import Endpoint
from ortoo.testing.memory_grpc.packet import Packet, Status
from ortoo.testing.memory_grpc.server_call import Handler, ServerCall

STOPPED_DETAILS = "Cancelling all calls"

_log = get_logger("memory grpc")


class Listeners(Protocol):
    """The registry of listening servers."""

    def listen(self, address: str, server: "CoreServer") -> int:
        """Take host:port, any free one for port 0; the port, or 0 when it is in use."""

    def close(self, server: "CoreServer") -> None:
        """Release all addresses."""


class _Phase(enum.Enum):
    READY, RUNNING, STOPPING, STOPPED = range(4)


class CoreServer:
    """Replaces the core below grpc.aio's server. Its handlers run in copies of the context of `start`."""

    def __init__(
        self,
        listening: Listeners,
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        options: Sequence[tuple[str, object]],
        maximum_concurrent_rpcs: int | None,
        window_bytes: int,
    ) -> None:
        """The first interceptor is the outermost."""
        self.endpoint = Endpoint.here()
        self.interceptors = tuple(interceptors)
        self._listening = listening
        self._limits = ChannelLimits(options, window_bytes)
        self._calls_max = maximum_concurrent_rpcs
        self._phase = _Phase.READY
        self._generic: list[grpc.GenericRpcHandler] = []
        self._registered: dict[str, Handler] = {}
        self._connections: dict[MemoryConnection, None] = {}
        self._open: dict[ServerCall, None] = {}
        self._counted: dict[ServerCall, None] = {}
        self._stopped: asyncio.Future[None] = self.endpoint.loop.create_future()
        if self.endpoint.node is not None:
            self.endpoint.node.add_kill_callback(self._killed)

    # Called by grpc.aio's server.

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Use these handlers for methods that are not registered, in this order."""
        self._generic.extend(handlers)

    def add_registered_method_handlers(self, handlers: dict[str, Handler]) -> None:
        """Use these handlers, by full method name; of duplicates the last one."""
        if self._phase is not _Phase.READY:
            _log.emit(log_events.METHOD_REGISTERED_LATE)
            return
        self._registered.update(handlers)

    def add_insecure_port(self, address: bytes) -> int:
        """The port; 0 when it is in use."""
        return self._listening.listen(address.decode(), self)

    def add_secure_port(self, address: bytes, credentials: object) -> int:
        """Errors: UsageError, always."""
        raise grpc.aio.UsageError("there is no TLS in memory; test it with real sockets")

    async def start(self) -> None:
        """Take connections. Errors: UsageError when it was stopped."""
        if self._phase is _Phase.RUNNING:
            return
        if self._phase is not _Phase.READY:
            raise grpc.aio.UsageError("Server not in ready state")
        self.endpoint = Endpoint.here()
        self._phase = _Phase.RUNNING

    async def shutdown(self, grace: float | None) -> None:
        """Accept no further connections and calls, wait `grace` seconds for open ones, and cancel the rest.

        As in grpc.aio it does not wait for handlers that were cancelled.
        """
        if self._phase in (_Phase.READY, _Phase.STOPPED):
            return
        if self._phase is _Phase.RUNNING:
            self._phase = _Phase.STOPPING
            self._listening.close(self)
            for connection in self._connections:
                connection.retire()
            self._see_whether_stopped()
        if grace is not None:
            try:
                await asyncio.wait_for(asyncio.shield(self._stopped), grace)
            except TimeoutError:
                self._break_all()
        else:
            self._break_all()
        await self._stopped
        if self._phase is _Phase.STOPPING:
            self._phase = _Phase.STOPPED
            self._break_all()
            if self.endpoint.node is not None:
                self.endpoint.node.remove_kill_callback(self._killed)

    async def wait_for_termination(self, timeout: float | None) -> bool:
        """Wait until the server has stopped; True if `timeout` passed before."""
        try:
            await asyncio.wait_for(asyncio.shield(self._stopped), timeout)
        except TimeoutError:
            return True
        return False

    def is_running(self) -> bool:
        """Whether it takes calls."""
        return self._phase is _Phase.RUNNING

    # Called by the transport, the connections and the calls.

    @property
    def accepts(self) -> bool:
        """Whether it takes connections."""
        return self._phase is _Phase.RUNNING and self.endpoint.is_alive

    def side(self) -> ConnectionEnd:
        """Its end of a new connection."""
        return ConnectionEnd(self.endpoint, self, self._limits.keepalive_s)

    def connected(self, connection: MemoryConnection) -> None:
        """A channel has connected."""
        self._connections[connection] = None

    def accept(self, connection: MemoryConnection, stream: CallStream, opening: Packet) -> None:
        """Begin a call."""
        if self._phase is not _Phase.RUNNING:
            refusal = Packet(opening.method, metadata=(), status=Status(UNAVAILABLE, "Server shutdown"))
            stream.send(refusal, to_server=False)
            connection.forget(stream)
            return
        is_one_too_many = self._calls_max is not None and len(self._counted) >= self._calls_max
        call = ServerCall(self, self.endpoint, self._limits, stream, opening, is_one_too_many=is_one_too_many)
        self._open[call] = None
        if not is_one_too_many:
            self._counted[call] = None
        connection.server.calls[stream] = call
        call.on_packet(opening)

    def handler(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of the method."""
        handler = self._registered.get(details.method)
        if handler is not None:
            return handler
        found = (generic.service(details) for generic in self._generic)
        return next((handler for handler in found if handler is not None), None)

    def call_closed(self, call: ServerCall) -> None:
        """Its status was sent, or its caller has disconnected; the handler may still run."""
        self._open.pop(call, None)
        self._see_whether_stopped()

    def call_is_over(self, call: ServerCall) -> None:
        """It is closed, and its handler has ended."""
        self._counted.pop(call, None)

    def connection_lost(self, connection: MemoryConnection, details: str) -> None:
        """A channel has disconnected."""
        self._connections.pop(connection, None)

    def connection_retires(self, connection: MemoryConnection) -> None:
        """Only servers retire connections."""

    def _break_all(self) -> None:
        for call in tuple(self._open):
            call.stop(Status(UNAVAILABLE, STOPPED_DETAILS))
        for connection in tuple(self._connections):
            connection.close(STOPPED_DETAILS, at_server=True)
        self._connections.clear()

    def _see_whether_stopped(self) -> None:
        if self._phase is _Phase.STOPPING and not self._open and not self._stopped.done():
            self._stopped.set_result(None)

    def _killed(self, silently: bool) -> None:
        assert self.endpoint.node is not None
        self._listening.close(self)
        self.endpoint.node.remains.append(self)
        for connection in tuple(self._connections):
            connection.kill_end(at_server=True, silently=silently)


class MemoryServer(Server):
    """grpc.aio's server with another core."""

    def __init__(self, core: CoreServer) -> None:
        """Replaces the real constructor, which creates a real core and a thread."""
        self._loop = core.endpoint.loop
        self._server: Any = core

    def __del__(self) -> None:
        """Keep running: the moment of a garbage collection differs between runs."""

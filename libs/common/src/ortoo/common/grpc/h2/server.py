"""A server with the interface of grpc.aio's, whose calls are read and answered on the event loop."""

import asyncio
import contextlib
import contextvars
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc

from ortoo.common.grpc.bulk_field import in_pieces
from ortoo.common.grpc.h2.connection import H2Connection
from ortoo.common.grpc.h2.headers import RepeatedRequests
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.methods import CallDetails, H2Method, InterceptedMethod
from ortoo.common.grpc.h2.ports import BACKLOG, Port
from ortoo.common.grpc.h2.shared.looks import DEADLINES_PER_S, Looks
from ortoo.common.grpc.h2.shared.tls_session import LINGER_S, TlsSession
from ortoo.common.grpc.h2.shared.turns import Turns
from ortoo.common.grpc.layers.arrival import END_S_MAX
from ortoo.common.grpc.layers.direct import direct_handler
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.grpc.layers.polls import polls_of
from ortoo.common.grpc.limits.broken_connections import BrokenConnections
from ortoo.common.grpc.tls import Contexts
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.process.clock import Clock, SystemClock

UNAVAILABLE: int = grpc.StatusCode.UNAVAILABLE.value[0]
STOPPED_DETAILS = "Cancelling all calls"
_log = get_logger("transport")


class H2Server(grpc.aio.Server):
    """A server that is not started yet. The interface is the part of grpc.aio.Server that Ortoo uses."""

    def __init__(
        self,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        options: Sequence[tuple[str, Any]] = (),
        clock: Clock | None = None,
    ) -> None:
        """The first interceptor is the outermost; a `Layers` alone costs no task of its own."""
        self.clock = clock or SystemClock()
        self.limits = WireLimits.of_options(options)
        self.connections: dict[H2Connection, None] = {}
        self._broken = BrokenConnections(self.clock)
        self.ended = self._broken.counts
        """The number of connections that were broken because of their peers' behaviour, by reason."""
        self.repeated = RepeatedRequests()
        self.looks = Looks()
        self.deadlines = Looks(DEADLINES_PER_S)
        self.turns = Turns()
        self._invalid_headers = 0
        """The number of calls whose headers violated HTTP/2."""
        self._log_rate = LogRateLimit()
        self._interceptors = tuple(interceptors)
        self._layers = interceptors[0] if len(interceptors) == 1 and isinstance(interceptors[0], Layers) else None
        self._registered: dict[str, Any] = {}
        self._generic: list[grpc.GenericRpcHandler] = []
        self._methods: dict[str, Any] = {}
        self._ports: list[Port] = []
        self._listening: list[asyncio.Server] = []
        self._around = contextvars.copy_context()
        self._is_started = self._is_stopping = False
        self._left: set[asyncio.Task[Any]] = set()
        """The handlers that run although their calls have ended."""
        self._no_calls = asyncio.Event()
        self._no_connections = asyncio.Event()
        """Set when the last connection has ended."""
        self._stopped = asyncio.Event()

    # The interface of grpc.aio.Server.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Use these handlers for methods that are not registered, in this order."""
        self._generic.extend(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Use these handlers, by method name; of duplicates the last one."""
        self._registered |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def add_insecure_port(self, address: str) -> int:
        """Bind host:port, any free port for 0; the port. Errors: RuntimeError if it cannot be bound."""
        return self._bind(address, None)

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Like `add_insecure_port`, with TLS; `server_credentials` is a `TlsListener`. Errors: Invalid as well."""
        return self._bind(address, server_credentials.contexts())

    def _bind(self, address: str, tls: Contexts | None) -> int:
        try:
            port = Port.bind(address, tls, reuses_port=self.limits.reuses_port)
        except OSError as error:
            raise RuntimeError(f"cannot bind {address}: {error}") from None
        self._ports.append(port)
        return port.number

    async def start(self) -> None:
        """Take connections. Errors: UsageError when it was stopped."""
        if self._is_stopping:
            raise grpc.aio.UsageError("Server not in ready state")
        if self._is_started:
            return
        self._is_started = True
        self._around = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        for port in self._ports:
            for one in port.sockets:
                self._listening.append(await loop.create_server(partial(self._accept, port), sock=one, backlog=BACKLOG))

    def _accept(self, port: Port) -> asyncio.BaseProtocol:
        connection = H2Connection(self, port)
        if port.tls is None:
            return connection
        return TlsSession(connection, port.tls.newest(), handshake_max_s=self.limits.set_up_max_s)

    async def stop(self, grace: float | None) -> None:
        """Refuse new connections and calls, wait `grace` seconds for open calls, and cancel the others.

        Handlers that were cancelled have `END_S_MAX` to end, also those whose callers had left before.
        """
        if not self._is_stopping:
            self._is_stopping = True
            for listening in self._listening:
                listening.close()
            if not self._is_started:
                for port in self._ports:
                    port.close()
            for connection in list(self.connections):
                connection.retire()
        self._look_for_calls()
        if grace:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._no_calls.wait()
        running = {one.task for each in self.connections for one in each.calls.values() if one.task is not None}
        for connection in list(self.connections):
            for call in list(connection.calls.values()):
                call.fail(UNAVAILABLE, STOPPED_DETAILS)
            connection.close()
        if running := running | self._left:
            await asyncio.wait(running, timeout=END_S_MAX)
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * LINGER_S):
                    await self._no_connections.wait()
        self._stopped.set()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; whether that timed out."""
        try:
            async with asyncio.timeout(timeout):
                await self._stopped.wait()
        except TimeoutError:
            return True
        return False

    # Called by connections.

    def add_connection(self, connection: H2Connection) -> bool:
        """Whether the server takes the connection."""
        limit = self.limits.connections_max
        if self._is_stopping or (limit and connection.port.connections >= limit):
            return False
        connection.port.connections += 1
        self.connections[connection] = None
        self._no_connections.clear()
        return True

    def remove_connection(self, connection: H2Connection) -> None:
        """The connection has ended."""
        del self.connections[connection]
        connection.port.connections -= 1
        if self._is_stopping:
            self._look_for_calls()
        if not self.connections:
            self._no_connections.set()

    def on_broken(self, reason: str, peer: str) -> None:
        """Count and log a connection that was broken because of the behaviour of its peer."""
        self._broken.add(reason, peer)

    def on_handler_left(self, task: "asyncio.Task[Any]") -> None:
        """A call ends before its handler, for which a stop waits."""
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    def on_call_ended(self) -> None:
        """A call of a connection has ended."""
        if self._is_stopping:
            self._look_for_calls()

    def on_invalid_headers(self, peer: str) -> None:
        """Log that headers of a peer have violated HTTP/2."""
        self._invalid_headers += 1
        if self._log_rate.acquire("invalid headers", self.clock.monotonic_s()):
            _log.emit(log_events.CALL_HEADERS_INVALID, peer=peer, since_start=self._invalid_headers)

    def _look_for_calls(self) -> None:
        if not any(connection.calls for connection in self.connections):
            self._no_calls.set()

    def find_method(self, path: str) -> Any:
        """The method of a path; None if there is none."""
        found = self._methods.get(path)
        return self._made(path) if found is None else found

    def _made(self, path: str) -> Any:
        if self._interceptors and self._layers is None:
            return InterceptedMethod(path, self._intercepted, self.clock, self._around, asyncio.get_running_loop())
        handler = self._handler(CallDetails(path))
        if handler is None:
            return None
        handler = handler._replace(response_serializer=in_pieces(handler.response_serializer))
        arriving = direct = None
        if self._layers is not None:
            arriving, direct = self._layers.arriving(path, handler), direct_handler(handler, path, self._layers)
            if (polls := polls_of(handler, path, self._layers)) is not None:
                self.repeated.add(path, polls)
            handler = self._layers.wrap(handler, path, joins=True)
            if direct is not None and direct.repeats is not None:
                self.repeated.add(path, direct.repeats)
        made = self._methods[path] = H2Method(path, handler, arriving, direct, self.clock, self._around)
        return made

    def _handler(self, details: grpc.HandlerCallDetails) -> Any:
        found = self._registered.get(details.method)
        if found is not None:
            return found
        return next(filter(None, (one.service(details) for one in self._generic)), None)

    async def _intercepted(self, call: Any, path: str) -> Any:
        details = CallDetails(path, call.metadata)

        async def ask(place: int, details: grpc.HandlerCallDetails) -> Any:
            if place == len(self._interceptors):
                return self._handler(details)
            return await self._interceptors[place].intercept_service(lambda given: ask(place + 1, given), details)

        return await ask(0, details)

"""Incoming calls: a server of any transport with health checks, reflection, limits and the translation of errors."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ortoo.common.errors import Conflict
from ortoo.common.errors.findings import Finding
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.layers.arrival import END_S_MAX
from ortoo.common.grpc.layers.call_memory import HEADER_BYTES_MAX, CallMemory
from ortoo.common.grpc.layers.coding import Decoding, Encoding
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Guard, Layer, Layers
from ortoo.common.grpc.layers.observers import Observers
from ortoo.common.grpc.limits import inflation
from ortoo.common.grpc.limits.connection_limits import ConnectionLimits, pending_calls_max
from ortoo.common.grpc.limits.connection_watch import ConnectionWatch
from ortoo.common.grpc.limits.memory_guard import MemoryGuard
from ortoo.common.grpc.tls import TlsListener
from ortoo.common.grpc.transport import H2, current_transport
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget

STREAMS_OF_CONNECTION_MAX = 1_000
"""Maximum number of open calls on one connection; a client's further calls wait for one of them to end."""
SET_UP_MS_MAX = 10_000
"""Timeout of a connection's set-up: the TLS handshake, and the HTTP/2 preface."""
IDLE_MS_MAX = 300_000
"""Maximum time of a connection without a call; clients reconnect automatically with their next call."""
PING_STRIKES_MAX = 100
"""Number of pings that may come too soon, without data in between, before the connection is closed."""
OPTIONS: tuple[tuple[str, int], ...] = (
    *inflation.OPTIONS,
    # The watch of connections reads their resets from channelz.
    ("grpc.enable_channelz", 1),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", HEADER_BYTES_MAX),
    # Between the two sizes gRPC refuses at random.
    ("grpc.absolute_max_metadata_size", HEADER_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_OF_CONNECTION_MAX),
    ("grpc.server_handshake_timeout_ms", SET_UP_MS_MAX),
    # A peer that has not acknowledged our settings is not bound by the two limits above.
    ("grpc.http2.settings_timeout", SET_UP_MS_MAX),
    ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", PING_STRIKES_MAX),
)

LIVE = "live"
"""The health service's name for liveness probes: the event loop runs, and the process can do its work."""
STOP_MARGIN_S = 0.1
"""Time for which a stop waits until watchers of health are notified."""

_log = get_logger("transport")
AddServicer = Callable[[Any], None]


class _CoreLayers(Layers):
    """The layers of a server of grpc.aio, which calls handlers before it has their requests.

    Its stop does not wait for handlers that it has cancelled.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__(layers, receives=True)
        self._running: set[asyncio.Task[Any]] = set()

    async def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Find the handler of a call, and note the call until it ends."""
        if (task := asyncio.current_task()) is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await super().intercept_service(continuation, handler_call_details)

    async def wait_until_ended(self) -> None:
        """Wait until the handlers of the stopped server have ended, but not longer than `END_S_MAX`."""
        if self._running:
            await asyncio.wait(self._running, timeout=END_S_MAX)


class _Health(health.aio.HealthServicer):  # type: ignore[misc]  # it comes without types
    """The health service. At a stop it notifies its watchers, and ends their streams, which would delay the stop."""

    def __init__(self, draining: asyncio.Event) -> None:
        super().__init__()
        self._draining = draining
        self.live = True

    async def Check(  # noqa: N802  # grpc's name
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse:
        if request.service != LIVE:
            return await super().Check(request, context)
        status = health_pb2.HealthCheckResponse.SERVING if self.live else health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802  # grpc's name
        async with Background("health") as background:
            watching = background.spawn("watch", super().Watch(request, context))
            draining = background.spawn("drain", self._draining.wait())
            await asyncio.wait({watching, draining}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({watching}, timeout=STOP_MARGIN_S)


class _Symbols:
    """The descriptors for reflection. The pool of protobuf finds the file of a service or message, but of no method."""

    def __init__(self) -> None:
        self._pool: Any = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802  # protobuf's name
        """The file that defines `symbol`. Errors: KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file


class GrpcServer:
    """A listening server. Entering the block binds the port; leaving it drains in two stages.

    A stop has two stages. The health service reports NOT_SERVING at once, and all calls are still served for
    `drain_delay_s`. Then `draining` is set, and handlers of long streams end them. Calls that are still running after
    another `grace_s` are cancelled.
    """

    def __init__(
        self,
        address: str,
        servicers: Sequence[tuple[str, AddServicer]],
        *,
        guards: Sequence[Guard] = (),
        layers: Sequence[Layer] = (),
        outermost: Sequence[Layer] = (),
        grace_s: float = 5.0,
        drain_delay_s: float = 0.0,
        tls: TlsListener | None = None,
        cluster_tls: TlsListener | None = None,
        memory: MemoryBudget | None = None,
        setting: str = "listen_address",
        is_ready: bool = True,
        own_address: str = "",
        shares_ports: bool = False,
        alone: asyncio.Event | None = None,
        connections_max: int = 0,
        connections_per_address_max: int = 0,
        descriptors_max: int = 0,
        connection_age_max_s: float = 0.0,
        wire: str = "grpc",
    ) -> None:
        """Serve on `address`, host:port. Port 0 = chosen by the kernel; an empty address = only TLS.

        `setting` is the name of the setting with the address, for errors. `servicers` are (full service name,
        add-to-server) pairs. If `is_ready` is False, the server reports NOT_SERVING until `set_serving` is called.

        The memory of calls is drawn from `memory`; None = from a budget of this server alone.

        The order of work at a call: `outermost`, memory, `guards`, the counts of elements, decoding, `layers`, the
        handler. A guard's layers `after_decoding` come before the other `layers`. Guards and layers raise OrtooErrors,
        as handlers do. The layers in `outermost` see the resulting status.

        `wire` is the implementation of gRPC's wire, "grpc" or "h2". A transport of the task's context takes precedence.

        With `shares_ports` other processes listen on the same ports, and each connection belongs to one of these
        processes. `own_address` is then a further address, which only this process serves; empty = none. `alone` is set
        when the process that advertised this process has ended. A stop then does not wait for load balancers.

        Each port takes `connections_max` connections (0 = as many as memory allows). One address may have
        `connections_per_address_max` of them (0 = half of the port's maximum). `descriptors_max` limits the connections
        of all ports together, divided evenly between the ports (0 = the process's share for connections). After about
        `connection_age_max_s` a connection takes no further calls, and its open calls continue (0 = no limit).
        """
        self.draining = asyncio.Event()
        self.serving = False
        """Whether requests are accepted."""
        self.address = address
        self._setting = setting
        self._is_ready = is_ready
        self._tls = tls
        self.tls_address = ""
        """host:port where TLS is spoken; empty when it is not."""
        self._cluster_tls = cluster_tls
        self.cluster_address = ""
        """host:port where the cluster's own processes are answered by mutual TLS; empty when there is none."""
        self.own_address = own_address
        self._grace_s = grace_s
        self._drain_delay_s = drain_delay_s
        self._alone = alone or asyncio.Event()
        self._names = [name for name, _ in servicers]
        self._health = _Health(self.draining)
        assert not any(isinstance(one, Guard) for one in layers), "a guard is entered before requests are decoded"
        memory = memory or MemoryBudget()
        calls = CallMemory(memory)
        before = [*outermost, ErrorTranslation(), calls, Observers(), Encoding(), *guards]
        after = [layer for guard in guards for layer in guard.after_decoding()]
        transport = current_transport().on_wire(wire)
        if wire == H2 and transport.has_core:
            _log.emit(log_events.TRANSPORT_H2_UNAVAILABLE)
        around = [*before, Decoding(calls), *after, *layers]
        self._layers = _CoreLayers(around) if transport.has_core else Layers(around)
        ports = sum(map(bool, (address, own_address, tls, cluster_tls)))
        limits = ConnectionLimits.chosen(
            connections_max,
            connections_per_address_max,
            memory.allowed_bytes,
            (descriptors_max or Descriptors.of_process().connections) // max(ports, 1),
        )
        options = (
            *OPTIONS,
            ("grpc.server.max_pending_requests_hard_limit", pending_calls_max(memory.allowed_bytes)),
            # Further connections are closed when they are accepted, so that idle ones and unfinished handshakes count.
            ("grpc.max_allowed_incoming_connections", limits.connections_max),
            # Two processes on one port would share its calls at random, unless another process holds it for them.
            ("grpc.so_reuseport", int(shares_ports)),
            # Transports spread the age by a tenth to both sides.
            *((("grpc.max_connection_age_ms", int(connection_age_max_s * 1000)),) if connection_age_max_s else ()),
        )
        self._server = transport.server([self._layers], options)
        sockets = _core_sockets() if transport.has_core else None
        self._connections = ConnectionWatch(limits, sockets, MemoryGuard(memory), SystemClock())
        self._calls = calls
        self._has_sockets = transport.has_sockets
        self._has_core = transport.has_core
        self._background = Background("connections")
        for _, add in servicers:
            add(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            [*self._names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME],
            self._server,
            pool=_Symbols(),
        )

    async def __aenter__(self) -> Self:
        try:
            self._bind_ports()
        except BaseException:
            await self._server.stop(None)  # it releases the ports that were bound
            raise
        await self._server.start()
        await self._background.__aenter__()
        try:
            if self._has_sockets:
                self._watch()
            await self.set_serving(self._is_ready)
        except BaseException:
            await self._stop(None)
            raise
        return self

    def _bind_ports(self) -> None:
        """Bind all ports. Errors: Conflict and Invalid, naming the setting."""
        if self.address:
            self.address = _bind(self.address, self._server.add_insecure_port, self._setting)
        if self.own_address:
            self.own_address = _bind(self.own_address, self._server.add_insecure_port, self._setting)
        self.tls_address, self.cluster_address = self._secured(self._tls), self._secured(self._cluster_tls)

    def _watch(self) -> None:
        """Watch the connections while the server listens."""
        addresses = (self.address, self.own_address, self.tls_address, self.cluster_address)
        self._connections.ports = {int(address.rpartition(":")[2]) for address in addresses if address}
        self._background.run_contained("connections", self._connections.watch_connections())
        self._background.run_contained("memory", self._connections.watch_memory())

    async def _stop(self, grace_s: float | None) -> None:
        try:
            await self._server.stop(grace_s)
            if isinstance(self._layers, _CoreLayers):
                await self._layers.wait_until_ended()
        finally:
            await self._background.__aexit__(None, None, None)

    def _secured(self, tls: TlsListener | None) -> str:
        if tls is None:
            return ""
        # Only grpcio reads its own form of credentials.
        credentials: Any = tls.credentials() if self._has_core else tls
        return _bind(tls.address, lambda at: self._server.add_secure_port(at, credentials), tls.settings[0])

    def findings(self) -> Iterator[Finding]:
        """The findings of ports that are nearly full, or were a moment ago."""
        return self._connections.findings()

    def ended_connections(self) -> dict[str, int]:
        """The number of connections that this server closed because of their peers' behaviour, by reason."""
        ended = {**self._connections.ended, **self._calls.ended}
        for reason, count in getattr(self._server, "ended", {}).items():  # of the transport h2
            ended[reason] = ended.get(reason, 0) + count
        return ended

    def mark_dead(self) -> None:
        """Report NOT_SERVING for the health check LIVE, because this process has to be restarted."""
        self._health.live = False

    async def set_serving(self, serving: bool) -> None:
        """Report by grpc.health.v1 whether requests are accepted."""
        self.serving = serving
        for name in ["", *self._names]:
            await self.set_health(name, serving)

    async def set_health(self, name: str, serving: bool) -> None:
        """Report one name of the health service as serving or not. Before that, the name is unknown."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set(name, status)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.serving = False
        try:
            # First stage: health checks fail, and all calls are served until load balancers have noticed that.
            await self._health.enter_graceful_shutdown()
            if self._drain_delay_s:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._drain_delay_s):
                        await self._alone.wait()
        finally:
            # Second stage: open calls end, also if the first stage was cancelled.
            self.draining.set()
            await self._stop(self._grace_s)


def _core_sockets() -> Any:
    from ortoo.common.grpc.limits.core_sockets import CoreSockets  # only servers of gRPC's core need the package

    return CoreSockets.of_newest()


def listen_error(address: str, field: str) -> Conflict:
    """The error for a port that cannot be bound."""
    return Conflict(
        f"cannot listen on {address}: the port is taken or the address is not this machine's; "
        f"choose another with {field}, or stop the other process",
        field=field,
    )


def _bind(address: str, bind: Callable[[str], int], field: str) -> str:
    """The address with the port that was bound. Errors: Conflict, naming the setting."""
    host, _, port = address.rpartition(":")
    try:
        bound = bind(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise listen_error(address, field)
    return f"{host}:{bound}" if port in ("0", "") else address

"""Incoming calls: one aio server with health, reflection, limits and one translation of errors."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from ortoo.common.errors import Conflict
from ortoo.common.errors.findings import Finding
from ortoo.common.grpc.around.call_memory import CallMemory
from ortoo.common.grpc.around.error_translation import ErrorTranslation
from ortoo.common.grpc.around.layers import Codec, Layer, Layers
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.connections import count_connections, end_silent
from ortoo.common.grpc.front.serving import QueueFront
from ortoo.common.grpc.tls import TlsListener
from ortoo.common.grpc.transport import current_transport
from ortoo.common.machine.descriptors import Descriptors, open_descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.logs import get_logger
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.threads import uninterrupted

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Two processes on one port would share its calls by chance; the second one must fail instead.
    ("grpc.so_reuseport", 0),
)
SHARING = (*OPTIONS[:-1], ("grpc.so_reuseport", 1))
"""Of a process whose ports somebody keeps for it and its like."""

CONNECTIONS_MAX = "grpc.max_allowed_incoming_connections"
"""gRPC's name for the limit of connections at one port: it closes what is beyond as soon as it is accepted, so that
idle connections and unfinished handshakes count as well."""
FOUND_PERCENT = 90
"""From what part of its connections on an operator is told of a port."""
LEFT_PERCENT = 75
"""Down to how many of its connections a port closes silent ones when it has FOUND_PERCENT: new clients must get in."""
ROOM_INTERVAL_S = 1.0
"""How often a role calls `make_room`."""
FOUND_S = 30.0
"""How long an operator is told that a port was full."""

LIVE = "live"
"""What the health service is asked for by who restarts a process: its event loop turns, and it can do its work."""
LAST_WORD_S = 0.1
"""How long a stop waits for watchers of health to hear of it."""

AddServicer = Callable[[Any], None]
_log = get_logger("server")


class _Health(HealthServicer):  # type: ignore[misc]  # it comes without types
    """The health service; those who watch it are told of a stop and let go, else each would hold up the stop."""

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
            await asyncio.wait({watching}, timeout=LAST_WORD_S)


class GrpcServer:
    """A listening server. Entering the block binds the port; leaving it drains in two stages.

    A stop has two stages. The health service says at once that requests are not welcome any more, and everything is
    served as before for `drain_delay_s`. Then `draining` is set: handlers of long streams end them when they see it.
    Calls that are still running after another `grace_s` are cancelled.
    """

    def __init__(
        self,
        address: str,
        servicers: Sequence[tuple[str, AddServicer]],
        *,
        layers: Sequence[Layer] = (),
        outermost: Sequence[Layer] = (),
        grace_s: float = 5.0,
        drain_delay_s: float = 0.0,
        tls: TlsListener | None = None,
        cluster_tls: TlsListener | None = None,
        memory: MemoryBudget | None = None,
        setting: str = "listen_address",
        is_ready: bool = True,
        hot: Collection[str] = (),
        own_address: str = "",
        shares_ports: bool = False,
        alone: asyncio.Event | None = None,
        connections_max: int = 0,
    ) -> None:
        """Serve on host:port (port 0: the kernel picks; empty: only by TLS), which `setting` names.

        `servicers` are (full service name, add-to-server) pairs. Unless it `is_ready` at once, requests are welcome
        when `set_serving` says so.

        `connections_max` is divided evenly between the ports; 0 = the share of one role in this process.

        What calls cost is drawn from `memory`; None = from a budget that nothing else draws from.

        `layers` raise OrtooErrors, as handlers do; those in `outermost` see the status that became of them.

        `hot` are full names of unary methods that the queue front serves, where it can.

        With `shares_ports` other processes listen on the same ports, and each connection is one's; `own_address` is
        then one more, where this process alone is reached. Empty = none. Once it is `alone`, for who told others of it
        is gone, a stop waits for nobody to hear of it.
        """
        self.draining = asyncio.Event()
        self.serving = False
        """Whether requests are welcome."""
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
        around = Layers([*outermost, ErrorTranslation(), CallMemory(memory or MemoryBudget()), Codec(), *layers])
        ports = sum(map(bool, (address, own_address, tls, cluster_tls)))
        self.connections_max = max(1, (connections_max or Descriptors.of_process().connections) // max(1, ports))
        """How many connections each port takes."""
        options = (*(SHARING if shares_ports else OPTIONS), (CONNECTIONS_MAX, self.connections_max))
        self._full: dict[int, tuple[float, int, int]] = {}
        """By port: when it was full last, by the loop's clock; how many connections it had; how many were closed."""
        self._server = current_transport().server([around], options)
        self._front = QueueFront.before(self._server, hot, around) if hot else None
        for _, add in servicers:
            add(self._front or self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            [*self._names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME],
            self._server,
        )

    async def __aenter__(self) -> Self:
        if self.address:
            self.address = _bound(self.address, self._server.add_insecure_port, self._setting)
        if self.own_address:
            self.own_address = _bound(self.own_address, self._server.add_insecure_port, self._setting)
        self.tls_address, self.cluster_address = self._secured(self._tls), self._secured(self._cluster_tls)
        if self._front is not None:
            self._front.register()
        await self._server.start()
        try:
            if self._front is not None:
                self._front.begin()
            await self.set_serving(self._is_ready)
        except BaseException:
            await self._stop(None)
            raise
        return self

    async def _stop(self, grace_s: float | None) -> None:
        await self._server.stop(grace_s)
        if self._front is not None:
            await self._front.close()

    def _secured(self, tls: TlsListener | None) -> str:
        if tls is None:
            return ""
        credentials = tls.credentials()
        return _bound(tls.address, lambda at: self._server.add_secure_port(at, credentials), tls.settings[0])

    def findings(self) -> Iterator[Finding]:
        """Whether a port has as many connections as it takes, or had a moment ago."""
        now_s = asyncio.get_running_loop().time()
        for port, (full_s, count, closed) in sorted(self._full.items()):
            if now_s - full_s <= FOUND_S:
                yield Finding(
                    "connections used up",
                    f"port {port} had {count} connections of {self.connections_max}, which the limit of "
                    f"{Descriptors.of_process().limit} file descriptors of the process allows it; {closed} that said "
                    "nothing were closed",
                    "further connections are closed at once; those that are open are served",
                    "raise the limit of open files (ulimit -n, LimitNOFILE=), or close idle clients; a snode can also "
                    "be joined by another one",
                )

    async def make_room(self) -> None:
        """Close connections whose peers say nothing where a port is nearly full. Roles call it every ROOM_INTERVAL_S.

        Only those are closed that no client of gRPC would leave so: else idle ones would keep new clients out.
        """
        if open_descriptors() >= self.connections_max * FOUND_PERCENT // 100:
            full = await uninterrupted(asyncio.get_running_loop().run_in_executor(None, self._made_room))
            now_s = asyncio.get_running_loop().time()
            for port, (count, closed) in full.items():
                if closed or port not in self._full or now_s - self._full[port][0] > FOUND_S:
                    most = self.connections_max
                    _log.warning("connections_used_up", port=port, count=count, most=most, closed=closed)
                self._full[port] = (now_s, count, closed)

    def _made_room(self) -> dict[int, tuple[int, int]]:
        """By port that was nearly full: how many connections it had, and how many of them were closed."""
        addresses = (self.address, self.own_address, self.tls_address, self.cluster_address)
        ports = {int(address.rpartition(":")[2]) for address in addresses if address}
        many, left = (self.connections_max * percent // 100 for percent in (FOUND_PERCENT, LEFT_PERCENT))
        full: dict[int, tuple[int, int]] = {}
        for port, count in count_connections(ports).items():
            if count >= many:
                full[port] = (count, end_silent(port, count - left))
        return full

    def never_again(self) -> None:
        """Say by grpc.health.v1, to who asks for LIVE, that only a new process can do this one's work."""
        self._health.live = False

    async def set_serving(self, serving: bool) -> None:
        """Say by grpc.health.v1 whether requests are welcome."""
        self.serving = serving
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ["", *self._names]:
            await self._health.set(name, status)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.serving = False
        try:
            # First word: go elsewhere. Whoever chooses by health needs a moment to hear it; all is served meanwhile.
            await self._health.enter_graceful_shutdown()
            if self._drain_delay_s:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._drain_delay_s):
                        await self._alone.wait()
        finally:
            # Second word: what is open ends. It is said even when nobody waits for the first one any more.
            self.draining.set()
            await self._stop(self._grace_s)


def cannot_listen(address: str, field: str) -> Conflict:
    """What is said of a port that cannot be had."""
    return Conflict(
        f"cannot listen on {address}: the port is taken or the address is not this machine's; "
        f"choose another with {field}, or stop the process that has it",
        field=field,
    )


def _bound(address: str, bind: Callable[[str], int], field: str) -> str:
    """The address with the port that was bound. Errors: Conflict, naming the setting."""
    host, _, port = address.rpartition(":")
    try:
        bound = bind(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise cannot_listen(address, field)
    return f"{host}:{bound}" if port in ("0", "") else address

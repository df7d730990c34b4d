"""Incoming calls: one aio server with health, reflection, limits and one translation of errors."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Self

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from ortoo.common.errors import Conflict
from ortoo.common.grpc.around.call_memory import CallMemory
from ortoo.common.grpc.around.coding import Decoding, Encoding
from ortoo.common.grpc.around.error_translation import ErrorTranslation
from ortoo.common.grpc.around.layers import Guard, Layer, Layers
from ortoo.common.grpc.around.observers import Observers
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.front.serving import QueueFront
from ortoo.common.grpc.tls import TlsListener
from ortoo.common.grpc.transport import current_transport
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import MemoryBudget

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

LIVE = "live"
"""What the health service is asked for by who restarts a process: its event loop turns, and it can do its work."""
LAST_WORD_S = 0.1
"""How long a stop waits for watchers of health to hear of it."""

AddServicer = Callable[[Any], None]


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
        hot: Collection[str] = (),
        own_address: str = "",
        shares_ports: bool = False,
        alone: asyncio.Event | None = None,
    ) -> None:
        """Serve on host:port (port 0: the kernel picks; empty: only by TLS), which `setting` names.

        `servicers` are (full service name, add-to-server) pairs. Unless it `is_ready` at once, requests are welcome
        when `set_serving` says so.

        What calls cost is drawn from `memory`; None = from a budget that nothing else draws from.

        The order of work at a call: `outermost`, memory, `guards`, the counts of elements, decoding, `layers`, the
        handler. Guards and layers raise OrtooErrors, as handlers do; those in `outermost` see the resulting status.

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
        assert not any(isinstance(one, Guard) for one in layers), "a guard is entered before requests are decoded"
        calls = CallMemory(memory or MemoryBudget())
        before = [*outermost, ErrorTranslation(), calls, Observers(), Encoding(), *guards]
        around = Layers([*before, Decoding(calls), *layers])
        self._server = current_transport().server([around], SHARING if shares_ports else OPTIONS)
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

"""The services over a store: opened permanently with one replica, otherwise for each term of leadership."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors.findings import Source
from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID, HALF_TOPIC_ID
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.tracing import open_tracing
from ortoo.enode import log_events
from ortoo.enode.cluster.admission import Admission
from ortoo.enode.cluster.group_retention import LOOK_INTERVAL_S, GroupLives
from ortoo.enode.cluster.registration import registration
from ortoo.enode.cluster.topic_copies import TopicCopies, watch_topics
from ortoo.enode.delays.scheduler import Delays
from ortoo.enode.appends.deduplicated import IdentifiedIntake
from ortoo.enode.appends.router import Intake
from ortoo.enode.delays.segment_rescue import TimerMoves
from ortoo.enode.transactions.coordinator import Transactions
from ortoo.enode.observe.findings import EnodeFindings
from ortoo.enode.observe.metrics import register, register_groups, register_pops, register_transactions
from ortoo.enode.observe.traces import TracedIntake
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.pops.retry_copies import SendingBack
from ortoo.enode.rpc.service import EnodeService, reachable_address
from ortoo.enode.rpc.streams.attach import AttachedSnodes
from ortoo.enode.settings import Settings
from ortoo.enode.store.store import Store
from ortoo.v1 import topic_pb2

SWITCH_INTERVAL_S = 0.0001
"""The flush thread needs the interpreter for a moment after each fdatasync. Beside a busy event loop it waits a whole
switch interval for that: with CPython's 5 ms a flush of 0.12 ms takes 11."""
CERTIFICATES_INTERVAL_S = 1.0
"""Interval between checks of the certificates' files."""
LEASES_APART = 1 << 39
"""Leases of an opening are numbered from a random number below this one, which is half of its range."""
IDLE_INTERVAL_S = 60.0
"""Interval at which idle pop groups are removed from memory."""
_log = get_logger("enode")


@dataclass(frozen=True, slots=True)
class Parts:
    """One open store and the services over it."""

    settings: Settings
    """The settings at the opening."""
    background: Background
    clock: Clock
    randomness: Randomness
    store: Store
    groups: GroupLives
    delays: Delays
    transactions: Transactions
    intake: Intake
    handlers: EnodeService

    def apply(self, settings: Settings) -> None:
        """Apply the settings that can change in a running process."""
        self.store.engine.housekeeping.retain_as(settings.store)
        self.groups.retention_ms = settings.group_retention_ms
        self.delays.delay_max_ms = settings.delay_max_ms
        self.handlers.identified.window_ms = settings.dedup_window_ms

    def measured(self, metrics: Metrics) -> Callable[[], None]:
        """Register the metrics; the returned function unregisters them."""
        before = metrics.names
        register(metrics, self.store, self.clock)
        register_pops(metrics, self.store, self.handlers.pops, self.handlers.sending)
        register_transactions(metrics, self.store, self.transactions)
        register_groups(metrics, self.groups)
        named = metrics.names - before
        return lambda: metrics.forget(named)

    @contextlib.asynccontextmanager
    async def announced(
        self, server: GrpcServer, name_servers: NameServers, channels: Channels, *, epoch: int = 0
    ) -> AsyncIterator[tuple[Source, ...]]:
        """Register the enode at the name servers with the address of `server`, follow them, and run background work.

        Yields the sources of findings. The leases are released at the end, unless the enode is led in an `epoch`,
        because then another replica may already hold them.
        """
        enode = topic_pb2.Enode(
            name=self.settings.name,
            address=reachable_address(self.settings, server),
            store_id=self.store.engine.identity.store_id,
            role=self.settings.role,
            epoch=epoch,
            made_from=self.store.engine.identity.made_from,
        )
        async with contextlib.AsyncExitStack() as stack:
            leases = registration(
                enode,
                self.handlers.topics,
                lambda: self.store.engine.housekeeping.index_is_nearly_full,
                lambda: self.store.describe().reason,
                name_servers,
                channels,
                interval_s=self.settings.heartbeat_interval_s,
                clock=self.clock,
                randomness=self.randomness,
            )
            if not epoch:
                stack.push_async_callback(leases.leave)
            admission = Admission(self.store, leases)
            following = watch_topics(
                self.handlers.topics,
                self.groups,
                name_servers,
                channels,
                connected=leases.hurry,
                admitted=admission.admitted,
                clock=self.clock,
                randomness=self.randomness,
            )
            self.background.spawn("topics", following)
            # These end before the leases are released, so that no released lease is renewed and no message is moved.
            for name, work in {
                "registration": leases.run(),
                "delays": self.delays.run(),
                "transactions": self.transactions.run(),
            }.items():
                stack.callback(self.background.spawn(name, work).cancel)
            lines = self.handlers.pops.lines
            self.background.every("idle groups", IDLE_INTERVAL_S, lines.forget_idle, clock=self.clock)
            self.background.every("silent groups", LOOK_INTERVAL_S, self.groups.look, clock=self.clock)
            self.background.spawn("locks", self.handlers.attached.follow_locks(self.clock))
            own = EnodeFindings(self.store, self.clock)
            health = Health(self.store, server, leases.hurry, own, may_open_again=bool(epoch))
            if not epoch:  # a leading replica is known to others by its election
                health.is_known = lambda: leases.is_known

            def answered() -> None:
                admission.look()
                if not epoch:
                    self.background.spawn("health", health.look())

            leases.answered = answered
            self.background.every("health", self.settings.health_interval_s, health.look, clock=self.clock)
            yield own.disk, own.messages, leases.findings


@contextlib.asynccontextmanager
async def open_parts(
    store: Store, settings: Settings, background: Background, *, clock: Clock, randomness: Randomness
) -> AsyncIterator[Parts]:
    """Create the services of `store`; background work starts only with `announced`."""
    async with contextlib.AsyncExitStack() as stack:
        topics = TopicCopies(store, settings.name)
        groups = GroupLives(store, clock, retention_ms=settings.group_retention_ms, following=topics.watching.is_set)
        delays = Delays(store, background, clock=clock, delay_max_ms=settings.delay_max_ms)
        rescues = store.engine.housekeeping.rescues
        rescues[DELAYED_TOPIC_ID] = TimerMoves(store, clock=clock).rescue
        transactions = Transactions(store, background, settings.check_schedule, clock=clock)
        rescues[HALF_TOPIC_ID] = transactions.rescue
        intake = Intake(store, delays, transactions)
        tracing = await stack.enter_async_context(
            open_tracing("enode", settings.name, settings.trace_endpoint, clock=clock, randomness=randomness)
        )
        taking = intake
        if tracing is not None:
            taking = TracedIntake(store, delays, transactions, tracing, settings.name)
        identified = IdentifiedIntake(store, taking, background, clock, window_ms=settings.dedup_window_ms)
        # A store that was restored from an image repeats the numbers of openings. So old handles must not match.
        pops = Leasing(store, clock, background, randomness.below(LEASES_APART))
        stack.push_async_callback(pops.lines.close)
        sending = SendingBack(store, pops.opened, intake, clock, background)
        handlers = EnodeService(store, topics, taking, identified, pops, sending, AttachedSnodes(store))
        yield Parts(settings, background, clock, randomness, store, groups, delays, transactions, intake, handlers)


@dataclass(slots=True)
class Health:
    """Reports whether this enode is healthy: by grpc.health.v1, and with `changed` to the name servers.

    It is healthy when it accepts messages and is registered.
    """

    store: Store
    server: GrpcServer
    changed: Callable[[], object]
    own: EnodeFindings
    is_known: Callable[[], bool] = lambda: True
    """Whether the enode is registered."""
    may_open_again: bool = False
    """Whether this process reopens a log whose disk failed; otherwise only a new process recovers."""
    writable: bool = True

    async def look(self) -> None:
        """Compare with the store and the leases, and report a change."""
        self.own.look()
        if self.server.draining.is_set():
            return
        description = self.store.describe()
        if description.writable != self.writable:
            self.writable = description.writable
            self.changed()
            if self.store.engine.appender.failure and not self.may_open_again:
                self.server.never_again()
            if self.writable:
                _log.emit(log_events.STORE_WRITABLE)
            else:
                _log.emit(log_events.STORE_READ_ONLY, reason=description.reason)
        if (is_ready := self.writable and self.is_known()) != self.server.serving:
            await self.server.set_serving(is_ready)

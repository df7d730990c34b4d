"""The services over a store, opened for each term of leadership."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
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
from ortoo.enode.appends.deduplicated import DeduplicatedAppends
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.cluster.admission import Admission
from ortoo.enode.cluster.group_retention import CHECK_INTERVAL_S, GroupRetention
from ortoo.enode.cluster.registration import enode_registration
from ortoo.enode.cluster.topic_copies import TopicCopies, watch_topics
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.delays.segment_rescue import SegmentRescue
from ortoo.enode.observe.backlog import Backlogs
from ortoo.enode.observe.findings import EnodeFindings
from ortoo.enode.observe.lag_history import CHECK_INTERVAL_S as LAG_CHECK_INTERVAL_S
from ortoo.enode.observe.lag_history import LagHistory
from ortoo.enode.observe.metrics import (
    register_backlogs,
    register_groups,
    register_pops,
    register_store,
    register_transactions,
)
from ortoo.enode.observe.traces import TracedAppendRouter
from ortoo.enode.pops.leasing import PopLeasing
from ortoo.enode.pops.retry_copies import RetryCopies
from ortoo.enode.rpc.service import EnodeService, reachable_address
from ortoo.enode.rpc.streams.attach import AttachedSnodes
from ortoo.enode.schedules.runner import ScheduleRunner
from ortoo.enode.settings import EnodeSettings
from ortoo.enode.store.store import Store
from ortoo.enode.transactions.coordinator import TransactionCoordinator
from ortoo.v1 import topic_pb2

SWITCH_INTERVAL_S = 0.0001
"""The flush thread needs the interpreter for a moment after each fdatasync. Beside a busy event loop it waits a whole
switch interval for that: with CPython's 5 ms a flush of 0.12 ms takes 11."""
CERTIFICATES_INTERVAL_S = 1.0
"""Interval between checks of the certificates' files."""
LEASES_APART = 1 << 39
"""Leases of an opening are numbered from a random number below this one, which is half of its range."""
FORGET_IDLE_INTERVAL_S = 60.0
"""Interval at which idle pop groups are removed from memory."""
_log = get_logger("enode")


@dataclass(frozen=True, slots=True)
class Announcement:
    """An enode that is registered and does its background work."""

    sources: tuple[Source, ...]
    """The sources of findings about it."""
    end: Callable[[], Awaitable[None]]
    """Ends the registration and the work before the services stop, so that snodes send nothing more. Idempotent."""


@dataclass(frozen=True, slots=True)
class EnodeServices:
    """One open store and the services over it."""

    settings: EnodeSettings
    """The settings at the opening."""
    background: Background
    clock: Clock
    randomness: Randomness
    store: Store
    groups: GroupRetention
    delays: DelayScheduler
    transactions: TransactionCoordinator
    schedules: ScheduleRunner
    appends: AppendRouter
    handlers: EnodeService

    def apply(self, settings: EnodeSettings) -> None:
        """Apply the settings that can change in a running process."""
        self.store.engine.housekeeping.use_retention_settings(settings.store)
        self.groups.retention_ms = settings.group_retention_ms
        self.delays.delay_max_ms = settings.delay_max_ms
        self.handlers.deduplicated.window_ms = settings.dedup_window_ms

    def register_metrics(self, metrics: Metrics) -> Callable[[], None]:
        """Register the metrics; the returned function unregisters them."""
        before = metrics.names
        register_store(metrics, self.store)
        register_backlogs(metrics, self.handlers.backlogs, self.clock)
        register_pops(metrics, self.store, self.handlers.pops, self.handlers.retry_copies)
        register_transactions(metrics, self.store, self.transactions)
        register_groups(metrics, self.groups)
        added = metrics.names - before
        return lambda: metrics.forget(added)

    @contextlib.asynccontextmanager
    async def announce(
        self,
        server: GrpcServer,
        name_servers: NameServers,
        channels: Channels,
        *,
        epoch: int,
        is_alone: bool,
        start: int,
        opened_end: int,
    ) -> AsyncIterator[Announcement]:
        """Register the enode at the name servers with the address of `server`, follow them, and run background work.

        The leases are released at the end if the enode `is_alone`; otherwise another replica may already hold them.
        `start` is the number of this start, which found the end of the log at `opened_end`.
        """

        def log() -> topic_pb2.EnodeLog | None:
            durable_end = self.store.engine.appender.durable_position
            found = topic_pb2.EnodeLog(start=start, opened_end=opened_end, durable_end=durable_end)
            return found if is_alone else None

        enode = topic_pb2.Enode(
            name=self.settings.name,
            address=reachable_address(self.settings, server),
            store_id=self.store.engine.identity.store_id,
            role=self.settings.role,
            epoch=epoch,
            made_from=self.store.engine.identity.made_from,
        )
        async with contextlib.AsyncExitStack() as stack:
            leases = enode_registration(
                enode,
                self.handlers.topics,
                lambda: self.store.engine.housekeeping.index_is_nearly_full,
                lambda: self.store.describe().reason,
                log,
                name_servers,
                channels,
                interval_s=self.settings.heartbeat_interval_s,
                clock=self.clock,
                randomness=self.randomness,
            )
            if is_alone:
                stack.push_async_callback(leases.unregister_all)
            admission = Admission(self.store, leases)
            following = watch_topics(
                self.handlers.topics,
                self.groups,
                name_servers,
                channels,
                on_snapshot=leases.register_now,
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
                "schedules": self.schedules.run(),
            }.items():
                stack.callback(self.background.spawn(name, work).cancel)
            lines = self.handlers.pops.lines
            self.background.every("idle groups", FORGET_IDLE_INTERVAL_S, lines.forget_idle, clock=self.clock)
            history = self.handlers.lag_history
            self.background.every("lag history", LAG_CHECK_INTERVAL_S, history.sample, clock=self.clock)
            self.background.every("silent groups", CHECK_INTERVAL_S, self.groups.check, clock=self.clock)
            self.background.spawn("locks", self.handlers.attached.follow_locks(self.clock))
            own_findings = EnodeFindings(self.store, self.handlers.backlogs, self.clock)
            health = Health(self.store, server, leases.register_now, own_findings, may_reopen=not is_alone)
            if is_alone:  # any other leader is known by its election
                health.is_known = lambda: leases.is_discoverable

            def answered() -> None:
                admission.refresh()
                if is_alone:
                    self.background.spawn("health", health.check())

            leases.answered = answered
            self.background.every("health", self.settings.health_interval_s, health.check, clock=self.clock)
            yield Announcement((own_findings.disk, own_findings.messages, leases.findings), stack.aclose)


@contextlib.asynccontextmanager
async def open_enode_services(
    store: Store, settings: EnodeSettings, background: Background, *, clock: Clock, randomness: Randomness
) -> AsyncIterator[EnodeServices]:
    """Create the services of `store`; background work starts only with `EnodeServices.announce`."""
    async with contextlib.AsyncExitStack() as stack:
        topics = TopicCopies(store, settings.name)
        groups = GroupRetention(
            store, clock, retention_ms=settings.group_retention_ms, following=topics.watching.is_set
        )
        delays = DelayScheduler(store, background, clock=clock, delay_max_ms=settings.delay_max_ms)
        rescues = store.engine.housekeeping.rescues
        rescues[DELAYED_TOPIC_ID] = SegmentRescue(store, clock=clock).rescue
        transactions = TransactionCoordinator(store, background, settings.check_schedule, clock=clock)
        rescues[HALF_TOPIC_ID] = transactions.rescue
        appends = AppendRouter(store, delays, transactions)
        tracing = await stack.enter_async_context(
            open_tracing("enode", settings.name, settings.trace_endpoint, clock=clock, randomness=randomness)
        )
        traced_appends = appends
        if tracing is not None:
            traced_appends = TracedAppendRouter(store, delays, transactions, tracing, settings.name)
        deduplicated = DeduplicatedAppends(store, traced_appends, background, clock, window_ms=settings.dedup_window_ms)
        # A store that was restored from an image repeats the numbers of openings. So old handles must not match.
        pops = PopLeasing(store, clock, background, randomness.below(LEASES_APART))
        stack.push_async_callback(pops.lines.close)
        retry_copies = RetryCopies(store, pops.batches, appends, clock, background)
        backlogs = Backlogs(store, clock, retry_copies)
        attached = AttachedSnodes(store)
        schedules = ScheduleRunner(store, background, clock=clock)
        handlers = EnodeService(
            store,
            topics,
            traced_appends,
            deduplicated,
            pops,
            retry_copies,
            attached,
            backlogs,
            LagHistory(backlogs),
            schedules,
        )
        yield EnodeServices(
            settings, background, clock, randomness, store, groups, delays, transactions, schedules, appends, handlers
        )


@dataclass(slots=True)
class Health:
    """Reports whether this enode is healthy: by grpc.health.v1, and with `changed` to the name servers.

    It is healthy when it accepts messages and is registered.
    """

    store: Store
    server: GrpcServer
    changed: Callable[[], object]
    findings: EnodeFindings
    is_known: Callable[[], bool] = lambda: True
    """Whether the enode is registered."""
    may_reopen: bool = False
    """Whether this process reopens a log whose disk failed; otherwise only a new process recovers."""
    writable: bool = True

    async def check(self) -> None:
        """Compare with the store and the leases, and report a change."""
        self.findings.sample()
        if self.server.draining.is_set():
            return
        description = self.store.describe()
        if description.writable != self.writable:
            self.writable = description.writable
            self.changed()
            if self.store.engine.appender.failure and not self.may_reopen:
                self.server.mark_dead()
            if self.writable:
                _log.emit(log_events.STORE_WRITABLE)
            else:
                _log.emit(log_events.STORE_READ_ONLY, reason=description.reason)
        if (is_ready := self.writable and self.is_known()) != self.server.serving:
            await self.server.set_serving(is_ready)

"""The process of a replica: it opens the log, again when needed, and serves clients in each term of leadership.

An enode without other replicas has one term. It elects itself, and reports to no name server.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import Conflict, NotLeader, OrtooError, Overloaded
from ortoo.common.errors.findings import ClusterIdentity, Finding
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.messages import write
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.memory_budget import memory_bytes
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode import log_events
from ortoo.enode.disk.disk import FULL
from ortoo.enode.leadership.open_log import make_driver, open_log
from ortoo.enode.leadership.services import Announcement, EnodeServices, open_enode_services
from ortoo.enode.log.copies.truncated_frames import TruncatedFrames
from ortoo.enode.observe.disk_space import disk_space_findings
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.frame_repair import FrameRepair
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Leader, Voter
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.replication.state_comparison import StateComparison
from ortoo.enode.replication.transfer import TRANSFER_POLL_S, TRANSFER_TIMEOUT_S
from ortoo.enode.rpc.leader_only import LeaderOnlyService, read_committed
from ortoo.enode.rpc.replicas.operators import EnodeReplicasService
from ortoo.enode.rpc.replicas.peers import ReplicaPeers, ask_to_join, fetch_frame_copy
from ortoo.enode.rpc.replicas.reports import ReplicaReports
from ortoo.enode.rpc.replicas.service import ReplicaService
from ortoo.enode.rpc.service import reachable_address
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.enode.settings import EnodeSettings, NodeRole
from ortoo.enode.store.store import Store
from ortoo.v1 import replica_report_pb2, replication_pb2

REOPEN_DELAY_S = 1.0
"""Delay before a replica opens its log again."""
_log = get_logger("replication")


@dataclass(eq=False)
class ReplicaProcess:
    """Opens the log again and again, until the process stops."""

    settings: EnodeSettings
    membership: ReplicaMembership
    channels: Channels
    name_servers: NameServers
    background: Background
    replica_service: ReplicaService
    metrics: Metrics
    clock: Clock
    randomness: Randomness
    server: GrpcServer = field(init=False)
    """The server for clients of the enode."""
    replica_address: str = ""
    driver: Driver | None = None
    """The driver of the open log; None while there is none."""
    services: EnodeServices | None = None
    """The services for clients; None while this replica does not lead."""
    truncated_messages: int = 0
    """Messages that were truncated from this replica's log since the process started."""
    repaired_frames: int = 0
    """Damaged frames that were repaired from other copies since the process started."""
    comparison: StateComparison = field(default_factory=StateComparison)

    def __post_init__(self) -> None:
        """Create the services; the log is not open yet."""
        self.leader_service = LeaderOnlyService(self.not_leading_error, self._may_read, self.clock)
        self.reports = ReplicaReports(self.name_servers, self.channels, self._report, self.background, self.clock)
        self.operator_service = EnodeReplicasService(
            self.settings.name,
            lambda: self.membership.stored.set_id,
            lambda: self.driver,
            self.not_leading_error,
            self.admit,
        )
        self.is_alone = not self.settings.replica_listen_address
        """Whether no other replica can reach this one."""
        self._serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when this process serves clients for the first time."""
        self._stopping = asyncio.Event()
        self._announcement: Announcement | None = None
        """The registration of the enode, while this replica leads."""
        self._run_task: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Start to join a set if necessary, and to open the log. Without other replicas, return when it serves.

        Errors: without other replicas, those of the opening.
        """
        self._run_task = self.background.spawn("replica", self._run_until_stopped())
        if self.is_alone:
            await self._serving
        else:
            self.background.spawn("reports", self.reports.run())

    async def _run_until_stopped(self) -> None:
        """Run. While `start` waits for an enode without other replicas, it gets the error."""
        try:
            await self._run()
        except Exception as error:
            if not self.is_alone or self._serving.done():
                raise
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:  # of a task, such as a failed disk
                error = error.exceptions[0]
            self._serving.set_exception(error)

    async def leave(self) -> None:
        """Transfer leadership or, without other replicas, release the leases. Called before the servers drain."""
        if self.is_alone:
            if self._announcement is not None:
                await self._announcement.end()
        elif self.driver is not None:
            await self._transfer_leadership(self.driver)

    async def stop(self) -> None:
        """Stop gracefully."""
        self._stopping.set()
        if self._run_task is not None:
            if self.driver is None:
                self._run_task.cancel()
            await asyncio.wait([self._run_task])
        if not self.is_alone:
            await self.reports.report_leaving()

    async def _transfer_leadership(self, driver: Driver) -> None:
        with contextlib.suppress(OrtooError, TimeoutError):
            async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                while isinstance(driver.replica.role, Leader) and driver.leading_epoch is None:  # it is about to
                    await self.clock.sleep(TRANSFER_POLL_S)
                successor = driver.most_complete_voter()
                if successor is None:
                    return
                await driver.transfer_leadership(successor)
                # Before the process ends, name servers must learn the successor, and snodes its address.
                while driver.election_request is not None or not isinstance(driver.replica.role, Follower):
                    if driver.election_request is not None:
                        self.reports.report_now()
                    await self.clock.sleep(TRANSFER_POLL_S)

    def _may_read(self) -> bool:
        """Whether this replica holds the read lease of its term."""
        return self.driver is not None and self.driver.replica.may_read(self.clock.monotonic_s())

    def not_leading_error(self) -> OrtooError:
        """The error for clients while this replica does not lead."""
        driver = self.driver
        if driver is None:
            return NotLeader("this replica of the enode opens its log")
        role, hard_state = driver.replica.role, driver.replica.hard_state
        if isinstance(role, Candidate | Leader):
            return NotLeader("this replica is about to lead; nothing was stored")  # the client may retry it
        leader = hard_state.leader.replica if isinstance(role, Follower | Voter) else None
        address = self.reports.addresses[leader].address if leader in self.reports.addresses else ""
        text = f"replica {leader.number} leads" if leader else "no leader is known"
        return NotLeader(f"{text}; nothing was stored", leader_address=address, epoch=hard_state.epoch)

    def cluster_identity(self) -> ClusterIdentity:
        """The directory that this process follows, known only while it leads, and its name servers."""
        directory_id = self.services.handlers.topics.directory_id if self.services is not None else ""
        return ClusterIdentity(directory_id, self.name_servers.addresses)

    def findings(self) -> Iterator[Finding | None]:
        """The findings about its disk, and about the enode that it leads; None = a step of the examination."""
        if self.driver is not None:
            yield from disk_space_findings(self.driver.log.engine.housekeeping)
        for source in self._announcement.sources if self._announcement is not None else ():
            yield from source()
        if times := self.comparison.mismatches:
            yield Finding(
                "state mismatch",
                f"the state of this replica differed from the leader's in {times} consecutive comparisons",
                "it folds its log again automatically; if it becomes leader before, it may serve wrong data",
                "check the machine's memory; if it continues, report the log line with the names of the tables",
            )

    def address_of(self, replica: ReplicaId) -> str:
        """The address of another replica, from name servers or the settings."""
        reported = self.reports.addresses.get(replica)
        if reported is not None and reported.replica_address:
            return reported.replica_address
        configured = self.settings.replica_address_list
        return configured[replica.number - 1] if 0 < replica.number <= len(configured) else ""

    async def admit(self, replica: ReplicaId, address: str) -> None:
        """Admit the disk at an address to this set. Errors: Conflict when it is another one, or of another set."""
        stored = self.membership.stored
        found = await self._ask_to_join(address, stored.set_id, stored.created_at_ms, dry_run=False)
        if found != replica:
            raise Conflict(
                f"at {address} is replica {found.number} with disk {found.disk}, not replica {replica.number} with "
                "disk "
                f"{replica.disk}",
                field="replica",
            )
        reported = replica_report_pb2.ReplicaAddress(
            replica=write(replica_report_pb2.ReplicaId, replica), replica_address=address
        )  # fmt: skip
        self.reports.addresses.setdefault(replica, reported)

    async def _run(self) -> None:
        """Open the log, again when needed, until the process stops."""
        has_begun = False
        while not self._stopping.is_set():
            try:
                if not has_begun:
                    self.reports.is_waiting = True
                    await self.membership.join_or_found(self._ask_to_join)
                    self.reports.is_waiting, has_begun = False, True
                reason = await self._run_log()
            except (Overloaded, OSError) as full:  # as with an open log, the replica waits for free space
                if isinstance(full, OSError) and full.errno not in FULL:
                    raise
                reason = str(full)
            finally:
                self.driver = self.replica_service.driver = self.reports.driver = None
            if not self._stopping.is_set():
                _log.emit(log_events.LOG_REOPENED, reason=reason)
                await self.clock.sleep(REOPEN_DELAY_S)

    async def _ask_to_join(self, address: str, set_id: str, created_at_ms: int, dry_run: bool) -> ReplicaId:
        request = replication_pb2.JoinRequest(
            cluster=self.settings.cluster,
            enode=self.settings.name,
            set_id=set_id,
            created_at_ms=created_at_ms,
            dry_run=dry_run,
        )
        return await ask_to_join(address, request, self.channels)

    async def _run_log(self) -> str:
        clock, settings = self.clock, self.settings
        store_settings = settings.store_settings.with_memory_limits(settings.memory_share_percent, memory_bytes())
        async with contextlib.AsyncExitStack() as stack:
            opened = open_log(self.membership, store_settings, self.comparison, is_reported=not self.is_alone)
            log = await stack.enter_async_context(opened)
            log.on_truncated = self._count_truncated
            stored = self.membership.stored
            background = await stack.enter_async_context(Background("member"))
            peers = ReplicaPeers(stored.replica, stored.set_id, self.address_of, self.channels, background, clock)
            driver = make_driver(
                log,
                self.membership,
                peers.send,
                background,
                self.comparison,
                follows_only=settings.role is NodeRole.SLAVE,
            )
            driver.reopens = not self.is_alone
            repair = FrameRepair(log.bytes, lambda: driver.replica, self._fetch_frame_copy, self._count_repaired)
            log.bytes.repair = log.engine.reader.repair = repair.repair
            self.driver = self.reports.driver = self.replica_service.driver = driver
            driver.start()
            stopping = background.spawn("stopping", self._stopping.wait())
            leading = background.spawn("terms of leadership", self._serve_while_leading(driver, log, background))
            await asyncio.wait({stopping, driver.ended}, return_when=asyncio.FIRST_COMPLETED)
            self.replica_service.driver = None
            leading.cancel()
            await asyncio.wait([leading])
            return driver.ended.result() if driver.ended.done() else "the process stops"

    @contextlib.contextmanager
    def _committed_reads(self, log: ReplicatedLog, background: Background) -> Iterator[None]:
        """Serve committed data to readers that accept a follower, while this replica follows.

        Afterwards their streams end, because an old stream would redirect its reader to another replica permanently.
        """
        over = asyncio.Event()
        if not log.is_missing_state:
            self.leader_service.committed_reads = read_committed(
                log.engine, StreamRunner(background, over), self.not_leading_error
            )
        try:
            yield
        finally:
            self.leader_service.committed_reads = None
            over.set()

    async def _fetch_frame_copy(self, replica: ReplicaId, position: int) -> bytes:
        of = write(replica_report_pb2.ReplicaId, replica)
        request = replication_pb2.CopyFrameRequest(set_id=self.membership.stored.set_id, source=of, position=position)
        return await fetch_frame_copy(self.address_of(replica), request, self.channels)

    def _count_repaired(self) -> None:
        self.repaired_frames += 1

    def _count_truncated(self, frames: TruncatedFrames) -> None:
        self.truncated_messages += frames.messages

    async def _serve_while_leading(self, driver: Driver, log: ReplicatedLog, background: Background) -> None:
        """Serve clients while this replica leads."""
        while True:
            with self._committed_reads(log, background):
                while (epoch := driver.leading_epoch) is None:
                    await self._wait_for_change(driver)
            try:
                await log.invalidate_lost_state()
            except (OrtooError, OSError) as error:  # leadership or disk space is lost; the next attempt decides
                _log.emit(log_events.FORCED_RECOVERY_FAILED, reason=str(error))
                await self.clock.sleep(REOPEN_DELAY_S)
                continue
            async with self._open_services(log, epoch):
                while driver.leading_epoch == epoch:
                    await self._wait_for_change(driver)
                self.leader_service.service = self.services = None
                self.reports.report_now()  # the services may take long to close, for example on a hanging disk

    def apply(self, settings: EnodeSettings) -> None:
        """Apply settings that can change in a running process, now and in each later term of leadership."""
        self.settings = settings
        if self.services is not None:
            self.services.apply(settings)

    async def _wait_for_change(self, driver: Driver) -> None:
        self.reports.report_now()
        driver.changed.clear()
        await driver.changed.wait()

    @contextlib.asynccontextmanager
    async def _open_services(self, log: ReplicatedLog, epoch: int) -> AsyncIterator[None]:
        settings, clock = self.settings, self.clock
        log.engine.housekeeping.use_retention_settings(settings.store)
        over = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            background = await stack.enter_async_context(Background("enode"))
            services = await stack.enter_async_context(
                open_enode_services(Store(log.engine), settings, background, clock=clock, randomness=self.randomness)
            )
            services.handlers.streams = StreamRunner(background, over)
            background.run_contained("drain", _end_streams(self.server, services, over))
            stack.callback(services.register_metrics(self.metrics))
            announced = services.announce(
                self.server,
                self.name_servers,
                self.channels,
                epoch=epoch,
                is_alone=self.is_alone,
                start=self.membership.stored.incarnation,
                opened_end=log.summary.appended,
            )
            self._announcement = await stack.enter_async_context(announced)
            self.leader_service.service, self.services = services.handlers, services
            if not self.is_alone:  # an enode alone serves when it is registered
                await self.server.set_serving(True)
            if not self._serving.done():
                self._serving.set_result(None)
            try:
                yield
            finally:
                self.leader_service.service = self.services = self._announcement = None
                over.set()
                if not self.server.draining.is_set():
                    await self.server.set_serving(False)

    def _report(self) -> replica_report_pb2.ReportReplicaRequest:
        stored, driver, settings = self.membership.stored, self.driver, self.settings
        request = replica_report_pb2.ReportReplicaRequest(
            enode=settings.name,
            set_id="" if self.reports.is_waiting else stored.set_id,
            replica=write(replica_report_pb2.ReplicaId, stored.replica),
            incarnation=stored.incarnation,
            address=reachable_address(settings, self.server),
            replica_address=self.replica_address,
            role=settings.role,
            made_from=stored.made_from,
        )
        if driver is not None:
            replica = driver.replica
            rules, log = replica.rules, replica.log
            request.epoch = replica.hard_state.epoch
            request.is_leading = driver.leading_epoch is not None
            request.tail.CopyFrom(write(replica_report_pb2.LogTail, rules.claimed_tail(log, replica.hard_state)))
            is_electable = rules.is_electable(log, replica.hard_state) and not log.is_truncating
            request.is_electable = is_electable and not driver.log.engine.appender.check_hanging()
            request.is_leader_silent = driver.is_leader_silent and not isinstance(replica.role, Leader)
            request.committed = log.committed
            request.voters.extend(write(replica_report_pb2.ReplicaId, one) for one in log.configuration.voters)
            request.learners.extend(write(replica_report_pb2.ReplicaId, one) for one in log.configuration.learners)
        return request


async def _end_streams(server: GrpcServer, services: EnodeServices, over: asyncio.Event) -> None:
    """When the server drains, answer waiting pops and end the streams. Snodes wait for them, and for other enodes."""
    await server.draining.wait()
    over.set()
    await services.handlers.pops.lines.close()

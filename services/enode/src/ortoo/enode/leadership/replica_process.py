"""The process of a replica: it opens the log, again when needed, and serves clients in each term of leadership."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import Conflict, Moved, OrtooError, Overloaded
from ortoo.common.errors.findings import Finding, Source
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
from ortoo.enode.replication.driver import HAND_OVER_LOOK_S, HAND_OVER_S, Doubts, Driver
from ortoo.enode.replication.membership import Joining
from ortoo.enode.replication.frame_repair import Repair
from ortoo.enode.replication.replicated_log import SharedLog, open_shared_log
from ortoo.enode.disk.identity import Identity
from ortoo.enode.log.copies.truncated_frames import CutFrames
from ortoo.enode.replication.protocol.identity import MemberId
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Leader, Voter
from ortoo.enode.recovery.replica_opening import owed
from ortoo.enode.leadership.services import Parts, open_parts
from ortoo.enode.rpc.leader_only import LeaderOnly, committed_reads
from ortoo.enode.rpc.replicas.operators import EnodeMembersService
from ortoo.enode.rpc.replicas.peers import MemberPeers, copy_frame, join
from ortoo.enode.rpc.replicas.reports import MemberReports
from ortoo.enode.rpc.replicas.service import MemberService
from ortoo.enode.rpc.service import reachable_address
from ortoo.enode.rpc.streams.runner import Streams
from ortoo.enode.settings import Settings
from ortoo.enode.store.store import Store
from ortoo.v1 import member_report_pb2, members_pb2

AGAIN_S = 1.0
"""Delay before a replica opens its log again."""
_log = get_logger("members")


@dataclass(eq=False)
class Lives:
    """Opens the log again and again, until the process stops."""

    settings: Settings
    joining: Joining
    channels: Channels
    name_servers: NameServers
    background: Background
    words: MemberService
    metrics: Metrics
    clock: Clock
    randomness: Randomness
    server: GrpcServer = field(init=False)
    """The server for clients of the enode."""
    member_address: str = ""
    driver: Driver | None = None
    """The driver of the open log; None while there is none."""
    parts: Parts | None = None
    """The services for clients; None while this replica does not lead."""
    sources: tuple[Source, ...] = ()
    """The sources of findings about the enode, while this replica leads."""
    cut_messages: int = 0
    """Messages that were truncated from this replica's log since the process started."""
    repaired_frames: int = 0
    """Damaged frames that were repaired from other copies since the process started."""
    doubts: Doubts = field(default_factory=Doubts)

    def __post_init__(self) -> None:
        """Create the services; the log is not open yet."""
        self.service = LeaderOnly(self.moved)
        self.reports = MemberReports(self.name_servers, self.channels, self._report, self.background, self.clock)
        self.members = EnodeMembersService(
            self.settings.name, lambda: self.joining.kept.set_id, lambda: self.driver, self.moved, self.admit
        )
        self._stopping = asyncio.Event()
        self._living: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """Start to join a set if necessary, and to open the log."""
        self._living = self.background.spawn("lives", self._live())
        self.background.spawn("reports", self.reports.run())

    async def end(self) -> None:
        """Transfer leadership, then stop gracefully."""
        if self.driver is not None:
            await self._hand_over(self.driver)
        self._stopping.set()
        if self._living is not None:
            if self.driver is None:
                self._living.cancel()
            await asyncio.wait([self._living])
        await self.reports.last_word()

    async def _hand_over(self, driver: Driver) -> None:
        with contextlib.suppress(OrtooError, TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                while isinstance(driver.member.role, Leader) and driver.leads is None:  # it is about to
                    await self.clock.sleep(HAND_OVER_LOOK_S)
                successor = driver.most_complete()
                if successor is None:
                    return
                await driver.hand_over(successor)
                # Before the process ends, name servers must learn the successor, and snodes its address.
                while driver.suggestion is not None or not isinstance(driver.member.role, Follower):
                    if driver.suggestion is not None:
                        self.reports.hurry()
                    await self.clock.sleep(HAND_OVER_LOOK_S)

    def moved(self) -> OrtooError:
        """The error for clients while this replica does not lead."""
        driver = self.driver
        if driver is None:
            return Moved("this replica of the enode opens its log")
        role, reign = driver.member.role, driver.member.reign
        if isinstance(role, Candidate | Leader):
            return Moved("this replica is about to lead; nothing was stored")  # the client may retry it
        leader = reign.leader.member if isinstance(role, Follower | Voter) else None
        address = self.reports.addresses[leader].address if leader in self.reports.addresses else ""
        said = f"replica {leader.number} leads" if leader else "no leader is known"
        return Moved(f"{said}; nothing was stored", leader_address=address, epoch=reign.epoch)

    def findings(self) -> Iterator[Finding]:
        """The findings about the enode that it leads."""
        for source in self.sources:
            yield from source()
        if times := self.doubts.times:
            yield Finding(
                "state mismatch",
                f"the state of this replica differed from the leader's in {times} consecutive comparisons",
                "it folds its log again automatically; if it becomes leader before, it may serve wrong data",
                "check the machine's memory; if it continues, report the log line with the names of the tables",
            )

    def address_of(self, member: MemberId) -> str:
        """The address of another replica, from name servers or the settings."""
        said = self.reports.addresses.get(member)
        if said is not None and said.member_address:
            return said.member_address
        known = self.settings.member_address_list
        return known[member.number - 1] if 0 < member.number <= len(known) else ""

    async def admit(self, member: MemberId, address: str) -> None:
        """Admit the disk at an address to this set. Errors: Conflict when it is another one, or of another set."""
        kept = self.joining.kept
        found = await self._ask(address, kept.set_id, kept.created_at_ms, asks_only=False)
        if found != member:
            raise Conflict(
                f"at {address} is replica {found.number} with disk {found.disk}, not replica {member.number} with disk "
                f"{member.disk}",
                field="member",
            )
        said = member_report_pb2.MemberAddress(
            member=write(member_report_pb2.MemberId, member), member_address=address
        )  # fmt: skip
        self.reports.addresses.setdefault(member, said)

    async def _live(self) -> None:
        """Open the log, again when needed, until the process stops."""
        has_begun = False
        while not self._stopping.is_set():
            try:
                if not has_begun:
                    self.reports.is_waiting = True
                    await self.joining.begin(self._ask)
                    self.reports.is_waiting, has_begun = False, True
                reason = await self._one_life()
            except Overloaded as full:  # as with an open log, the replica waits for free space
                reason = full.message
            finally:
                self.driver = self.words.listener = self.reports.driver = None
            if not self._stopping.is_set():
                _log.emit(log_events.LOG_REOPENED, reason=reason)
                await self.clock.sleep(AGAIN_S)

    async def _ask(self, address: str, set_id: str, created_at_ms: int, asks_only: bool) -> MemberId:
        request = members_pb2.JoinRequest(
            cluster=self.settings.cluster,
            enode=self.settings.name,
            set_id=set_id,
            created_at_ms=created_at_ms,
            asks_only=asks_only,
        )
        return await join(address, request, self.channels)

    async def _one_life(self) -> str:
        settings, clock = self.settings, self.clock
        kept, outline = self.joining.started()
        log = await open_shared_log(
            settings.data_dir,
            identity=Identity(settings.cluster, settings.name, kept.set_id, kept.created_at_ms, kept.member.disk),
            settings=settings.store_settings.within(settings.memory_share_percent, memory_bytes()),
            disk=self.joining.disk,
            clock=clock,
            kept=outline,
            doubts=self.doubts.times,
        )
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(log.close)
            log.on_cut = self._count_cut
            self._keep_losses(log)
            kept = self.joining.kept
            background = await stack.enter_async_context(Background("member"))
            peers = MemberPeers(kept.member, kept.set_id, self.address_of, self.channels, background, clock)
            known, now_s = log.known_committed, clock.monotonic_s()
            member = Member.started(kept.process, log.outline, kept.reign, now_s, known_committed=known)
            driver = Driver(log, member, self.joining, peers.send, background, clock, self.doubts)
            repair = Repair(log.bytes, lambda: driver.member, self._copy_of, self._count_repaired)
            log.bytes.repair = log.engine.reader.repair = repair.frame
            self.driver = self.reports.driver = self.words.listener = driver
            driver.start()
            stopping = background.spawn("stopping", self._stopping.wait())
            reigns = background.spawn("terms of leadership", self._reigns(driver, log, background))
            await asyncio.wait({stopping, driver.over}, return_when=asyncio.FIRST_COMPLETED)
            self.words.listener = None
            reigns.cancel()
            await asyncio.wait([reigns])
            return driver.over.result() if driver.over.done() else "the process stops"

    @contextlib.contextmanager
    def _reads(self, log: SharedLog, background: Background) -> Iterator[None]:
        """Serve committed data to readers that accept a follower, while this replica follows.

        Afterwards their streams end, because an old stream would redirect its reader to another replica permanently.
        """
        over = asyncio.Event()
        if not log.is_cold:
            self.service.reads = committed_reads(log.engine, Streams(background, over), self.moved)
        try:
            yield
        finally:
            self.service.reads = None
            over.set()

    async def _copy_of(self, member: MemberId, position: int) -> bytes:
        of = write(member_report_pb2.MemberId, member)
        request = members_pb2.CopyFrameRequest(set_id=self.joining.kept.set_id, of=of, position=position)
        return await copy_frame(self.address_of(member), request, self.channels)

    def _count_repaired(self) -> None:
        self.repaired_frames += 1

    def _count_cut(self, frames: CutFrames) -> None:
        self.cut_messages += frames.messages

    def _keep_losses(self, log: SharedLog) -> None:
        """Record permanently the position that this disk once had, before any other replica gets a message."""
        kept = self.joining.kept
        debt = owed(log.lost, kept.reign)
        if debt == kept.reign:
            return
        is_alone = log.outline.members.voters == (kept.member,)
        cure = "`ortoo-enode elect DIR --lose` continues without it" if is_alone else "the others must send it again"
        _log.emit(log_events.DISK_LOST_DATA, position=log.lost, remedy=cure)
        self.joining.keep(replace(kept, reign=debt))

    async def _reigns(self, driver: Driver, log: SharedLog, background: Background) -> None:
        """Serve clients while this replica leads."""
        while True:
            with self._reads(log, background):
                while (epoch := driver.leads) is None:
                    await self._change(driver)
            try:
                await log.begin_anew()
            except (OrtooError, OSError) as error:  # leadership or disk space is lost; the next attempt decides
                _log.emit(log_events.FORCED_RECOVERY_FAILED, reason=str(error))
                await self.clock.sleep(AGAIN_S)
                continue
            async with self._open_reign(log, epoch):
                while driver.leads == epoch:
                    await self._change(driver)
                self.service.service = self.parts = None

    def apply(self, settings: Settings) -> None:
        """Apply settings that can change in a running process, now and in each later term of leadership."""
        self.settings = settings
        if self.parts is not None:
            self.parts.apply(settings)

    async def _change(self, driver: Driver) -> None:
        self.reports.hurry()
        driver.changed.clear()
        await driver.changed.wait()

    @contextlib.asynccontextmanager
    async def _open_reign(self, log: SharedLog, epoch: int) -> AsyncIterator[None]:
        settings, clock = self.settings, self.clock
        log.engine.housekeeping.retain_as(settings.store)
        over = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            background = await stack.enter_async_context(Background("enode"))
            parts = await stack.enter_async_context(
                open_parts(Store(log.engine), settings, background, clock=clock, randomness=self.randomness)
            )
            parts.handlers.streams = Streams(background, over)
            stack.callback(parts.measured(self.metrics))
            telling = parts.announced(self.server, self.name_servers, self.channels, epoch=epoch)
            self.sources = await stack.enter_async_context(telling)
            self.service.service, self.parts = parts.handlers, parts
            await self.server.set_serving(True)
            try:
                yield
            finally:
                self.service.service, self.parts, self.sources = None, None, ()
                over.set()
                if not self.server.draining.is_set():
                    await self.server.set_serving(False)

    def _report(self) -> member_report_pb2.ReportMemberRequest:
        kept, driver, settings = self.joining.kept, self.driver, self.settings
        request = member_report_pb2.ReportMemberRequest(
            enode=settings.name,
            set_id="" if self.reports.is_waiting else kept.set_id,
            member=write(member_report_pb2.MemberId, kept.member),
            incarnation=kept.incarnation,
            address=reachable_address(settings, self.server),
            member_address=self.member_address,
            role=settings.role,
            made_from=kept.made_from,
        )
        if driver is not None:
            member = driver.member
            rules, log = member.rules, member.log
            request.epoch = member.reign.epoch
            request.is_leading = driver.leads is not None
            request.tail.CopyFrom(write(member_report_pb2.LogTail, rules.claimed_tail(log, member.reign)))
            request.is_electable = rules.is_electable(log, member.reign) and not log.is_cutting
            request.is_leader_silent = driver.is_leader_silent and not isinstance(member.role, Leader)
            request.committed = log.committed
            request.voters.extend(write(member_report_pb2.MemberId, one) for one in log.members.voters)
            request.learners.extend(write(member_report_pb2.MemberId, one) for one in log.members.learners)
        return request

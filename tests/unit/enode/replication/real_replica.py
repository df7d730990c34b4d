"""Replica 1 of three with its real driver, log and files on a disk in memory. The test plays the other two."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.enode.leadership.open_log import make_driver, open_log
from ortoo.enode.log.copies.frame_copies import frames_in
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.events import LeaderProposed
from ortoo.enode.replication.protocol.identity import Incarnation, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import EpochFrame, LogBase
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    Frames,
    Heartbeat,
    HeartbeatResponse,
    LogMatched,
    LogMatchRequest,
    LogMatchResponse,
    Message,
    Vote,
)
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.replication.state_comparison import StateComparison
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.workload import FOLDER
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.one_store import SETTINGS

TWO, THREE = (Incarnation(ReplicaId(number, f"disk-{number}"), 7) for number in (2, 3))
TURNS_MAX = 10_000
LEASE_GRANTED_S = 1.0
"""A replica that just started votes only after this time."""
Kind = TypeVar("Kind", bound=Message)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the replica, and the number of its disk's operations when it was sent."""

    to: ReplicaId
    message: Message
    operations: int


@dataclass(eq=False)
class Machine:
    """The disk, clock and membership of the replica, over all its starts."""

    memory: MemoryDisk = field(default_factory=lambda: MemoryDisk(record=True))
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        """Make the folder."""
        self.memory.make_folder(FOLDER)
        self.disk = FaultyDisk(self.memory)
        self.membership = self._membership()

    def _membership(self) -> ReplicaMembership:
        addresses = ("1", "2", "3")
        return ReplicaMembership(
            self.disk, FOLDER, self.clock, Randomness(1), initial_voters=3, addresses=addresses
        )  # fmt: skip

    def lose_power(self) -> None:
        """Leave only what is durable. The replica has no open log."""
        self.memory = self.memory.after_crash(Randomness(1), LOSE_UNSYNCED, record=True)
        self.disk = FaultyDisk(self.memory)
        self.membership = self._membership()

    def durable_at(self, operations: int) -> MemoryDisk:
        """The disk, as a loss of power after this number of its operations would have left it."""
        return MemoryDisk.replayed(self.memory.operations[:operations]).after_crash(Randomness(1), LOSE_UNSYNCED)

    @contextlib.asynccontextmanager
    async def start(self, settings: StoreSettings = SETTINGS) -> AsyncIterator["RealReplica"]:
        """Open the log and start the driver; leaving the block stops both."""

        async def ask(address: str, set_id: str, created_at_ms: int, dry_run: bool) -> ReplicaId:
            return (TWO if address == "2" else THREE).replica

        await self.membership.join_or_found(ask)
        async with (
            open_log(self.membership, settings, StateComparison()) as log,
            Background("replica") as background,
        ):
            sent: list[Sent] = []

            def send(to: ReplicaId, message: Message) -> None:
                sent.append(Sent(to, message, len(self.memory.operations)))

            driver = make_driver(log, self.membership, send, background, StateComparison())
            driver.start()
            yield RealReplica(self, log, driver, sent, background)


@dataclass(eq=False)
class RealReplica:
    """One start of the replica."""

    machine: Machine
    log: ReplicatedLog
    driver: Driver
    sent: list[Sent]
    background: Background
    copied_opening: int = 0
    """The number of the opening in the frames of the last leader."""

    @property
    def own(self) -> Incarnation:
        """The replica, and the number of its start."""
        return self.driver.replica.identity

    @property
    def epoch(self) -> int:
        """The epoch that it has voted in."""
        return self.driver.replica.hard_state.epoch

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the tasks of the replica run until a condition holds; the clock stands still."""
        for _ in range(TURNS_MAX):
            if condition():
                return
            await self.machine.clock.sleep(0)
        raise AssertionError("the condition does not hold")

    def messages(self, kind: type[Kind]) -> list[Kind]:
        """All sent messages of a kind."""
        return [one.message for one in self.sent if isinstance(one.message, kind)]

    async def lead(self, epoch: int) -> None:
        """Lead with the vote of replica 2, which then has the whole log. Earlier leases end before."""
        await self.machine.clock.pass_time(LEASE_GRANTED_S)
        self.driver.post(LeaderProposed(epoch, self.own.replica))
        await self.until(lambda: self.epoch == epoch and self.driver.replica.hard_state.leader == self.own)
        await self.until(lambda: self.machine.membership.stored.hard_state.epoch == epoch)
        self.driver.post(Vote(epoch, TWO, Tail(0, 0), is_electable=True))
        await self.until(lambda: self.driver.replica.log.history.last_epoch == epoch)
        self.match(epoch)
        await self.until(lambda: any(one.end >= self.end for one in self.messages(Frames)))
        self.acknowledge(epoch)
        await self.until(lambda: self.driver.leading_epoch == epoch)

    def match(self, epoch: int) -> None:
        """Replica 2 follows this leader, with an empty log."""
        for event in (LogMatchRequest(epoch, TWO, 1, 0), LogMatched(epoch, TWO, 1, 0, 0)):
            self.driver.post(event)

    def acknowledge(self, epoch: int) -> None:
        """Replica 2 has flushed the whole log, and answers the last heartbeat."""
        self.driver.post(AppendAck(epoch, TWO, 1, self.end))
        self.driver.post(HeartbeatResponse(epoch, TWO, self.driver.replica.round_count, 1, self.end))

    async def stored(self, epoch: int, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a change at this leader, whose frames replica 2 acknowledges."""
        task: asyncio.Task[Result] = self.background.spawn("change", work)
        for _ in range(TURNS_MAX):
            if task.done():
                break
            await self.machine.clock.sleep(0)
            if any(one.end == self.end for one in self.messages(Frames)):
                self.acknowledge(epoch)
        return await task

    @property
    def end(self) -> int:
        """The end of the log."""
        return self.driver.replica.log.appended

    async def follow(self, epoch: int, *, opening: int, end: int | None = None) -> None:
        """Follow replica 2, which leads an epoch; its frames have this number of the opening.

        Its log ends where this one does, or at `end`.
        """
        self.copied_opening = opening
        self.beat(epoch)
        await self.until(lambda: any(one.epoch == epoch for one in self.messages(LogMatchRequest)))
        stream = self.messages(LogMatchRequest)[-1].stream
        history, configuration = self.driver.replica.log.history, self.driver.replica.log.configuration
        base = LogBase(0, 0, configuration)
        self.driver.post(
            LogMatchResponse(epoch, self.own, stream, history.last_epoch, self.end if end is None else end, base)
        )
        await self.until(lambda: any(one.epoch == epoch for one in self.messages(LogMatched)))

    def beat(self, epoch: int, *, committed: int = 0) -> None:
        """Get a heartbeat of replica 2, which leads."""
        stream = self.messages(LogMatched)[-1].stream if self.messages(LogMatched) else 0
        incarnation = self.own.incarnation if stream else 0
        self.driver.post(Heartbeat(epoch, TWO, 1, committed, self.end, incarnation, stream))

    def receive(self, epoch: int, kind: FrameKind = FrameKind.MARK, *, committed: int = 0) -> int:
        """Get a frame of the leader; returns its end."""
        begin = self.end
        header = FrameHeader(
            kind=kind, position=begin, leader_epoch=epoch, store_open=self.copied_opening, producer_id=self.log_mark
        )
        marks = (EpochFrame(begin, header.end_position, epoch),) if kind is FrameKind.EPOCH else ()
        content = list(frames_in(header.encoded(), begin))
        stream = self.messages(LogMatched)[-1].stream
        self.driver.post(Frames(epoch, self.own, stream, begin, header.end_position, marks, committed, content))
        return header.end_position

    @property
    def log_mark(self) -> int:
        """The fingerprint of the log."""
        return self.log.engine.identity.log_mark

"""The driver: passes one event after another to the protocol, and executes the resulting actions in order."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import Conflict, DataLoss, OrtooError, Overloaded
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.replication.contradiction import contradiction
from ortoo.enode.replication.membership import Joining
from ortoo.enode.replication.replicated_log import SharedLog
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.copies.protocol_frames import begin_payload, members_payload
from ortoo.enode.log.frame import BadFrame, Kind
from ortoo.enode.replication.protocol.events import (
    Action,
    Appended,
    AppendEpoch,
    AppendMembers,
    Committed,
    Contradicted,
    Cut,
    CutDone,
    DeleteBelow,
    Deposed,
    Event,
    Flushed,
    HandOver,
    Lead,
    LeaderSilent,
    Refused,
    ReignSaved,
    Restart,
    SaveReign,
    Send,
    Ship,
    Shipped,
    Suggest,
    Tick,
    Write,
)
from ortoo.enode.replication.protocol.identity import MemberId
from ortoo.enode.replication.protocol.leader import deletable_below
from ortoo.enode.replication.protocol.log_summary import LogOutline, Mark, MembersFrame
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.messages import Frames, Heartbeat, Message
from ortoo.enode.replication.protocol.step import step
from ortoo.enode.replication.protocol.roles import Follower, Leader

TICK_S = 0.1
LATE_BYTES = 16 << 20
"""A follower that lacks more than this is late."""
CATCH_UP_BYTES_PER_S = 24 << 20
"""Rate of frames to late followers while clients are served, because both share processor and disk."""
SERVING_S = 0.5
"""Clients count as served for this time after an append."""
CATCH_UP_KEEP_BYTES = 1 << 30
"""Maximum of the log that is kept for a follower that is behind."""
REFOLD_APART_S = 10.0
"""Delay of a replica before it folds its state again, for each replica with a lower number; a majority serves."""
REFOLDS_MAX = 3
"""Maximum of attempts to fold from an earlier checkpoint; later a replica only reports that its state differs."""
HAND_OVER_S = 3.0
"""Time in which a stopping leader tries to transfer leadership."""
HAND_OVER_LOOK_S = 0.02
FULL_DISK_S = 1.0
"""Delay before a follower retries a write to a full disk."""
_log = get_logger("members")


@dataclass(slots=True)
class Doubts:
    """State mismatches between this replica and the leader, over all openings of its log."""

    times: int = 0
    """The number of consecutive mismatches."""
    compared: int = 0
    """The number of the last compared digests, so that folding again does not compare them again."""


@dataclass(eq=False)
class Driver:
    """One start of a replica. It belongs to the event loop that opened its log."""

    log: SharedLog
    member: Member
    """The current state of the protocol; at first from `log` and `joining`."""
    joining: Joining
    send: Callable[[MemberId, Message], object]
    """Sends a message to another replica; it may be lost."""
    background: Background
    clock: Clock
    doubts: Doubts
    suggestion: Suggest | None = None
    """The election request for name servers; it is removed when a higher epoch is known."""
    is_leader_silent: bool = False
    leads: int | None = None
    """The epoch in which this replica serves clients; None while it does not."""
    shipments: int = 0
    shipped_bytes: int = 0

    def __post_init__(self) -> None:
        """Subscribe to the events of the log."""
        log = self.log
        self.changed = asyncio.Event()
        """Set when the reported state or the leader has changed."""
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the log must be opened again; the replica then starts again."""
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._step = asyncio.Event()
        self._cuts = 0
        """The number of completed truncations; flush events refer to the log after these."""
        self._is_changing_members, self._refusal = False, ""
        self._appended_s = self._late_until_s = 0.0
        """Time of the last append; time from which more frames may be sent to late followers."""
        self._log_work: asyncio.Queue[tuple[Action, LogOutline]] = asyncio.Queue()
        self._reigns: asyncio.Queue[SaveReign] = asyncio.Queue()
        log.on_appended = self._appended
        log.on_flushed = lambda position: self.post(Flushed(self._cuts, position))
        log.on_warm = lambda: self._end("a checkpoint has come, and the log can be folded from it")
        log.engine.appender.on_failed = self._end
        log.engine.committer.on_compared = self._compared
        log.engine.may_read = lambda: self.member.may_read(self.clock.monotonic_s())
        log.engine.housekeeping.move_begin = self._move_begin

    def start(self) -> None:
        """Start the loops."""
        self.background.spawn("disk", self._work())
        self.background.spawn("reigns", self._save_reigns())
        self.background.spawn("ticks", self._tick())

    def post(self, event: Event) -> None:
        """Pass an event to the protocol, and execute the resulting actions."""
        if self.is_leader_silent and isinstance(event, Heartbeat) and event.epoch >= self.member.reign.epoch:
            self.is_leader_silent = False
            self.changed.set()
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                self.member, actions = step(self.member, self._events.popleft(), self.clock.monotonic_s())
                for action in actions:
                    self._act(action)
        finally:
            self._is_stepping = False
        self._step.set()

    def _act(self, action: Action) -> None:
        if isinstance(action, Send):
            self.send(action.to, action.message)
        elif isinstance(action, Ship):
            if self._gives_way(action.begin) or not self._shipped(action, self.log.bytes.newest(action)):
                self.background.contained("ship", self._ship(action))
        elif isinstance(action, Committed):
            self.log.commit(action.position)
        elif isinstance(action, SaveReign):
            self._reigns.put_nowait(action)
        elif isinstance(action, Deposed):
            self._depose(action.epoch)
        elif isinstance(action, Suggest):
            self.suggestion = action
            self.changed.set()
        elif isinstance(action, LeaderSilent):
            self.is_leader_silent = True
            self.changed.set()
        elif isinstance(action, Refused):
            self._refusal = action.reason
        elif isinstance(action, AppendMembers) and self._is_changing_members:
            self._refusal = "another change of the replicas is being written: retry in a moment"
        else:
            self._is_changing_members |= isinstance(action, AppendMembers)
            self._log_work.put_nowait((action, self.member.log))

    async def _do(self, action: Action, outline: LogOutline) -> None:
        """Execute an action on the log that was decided for the log summary `outline`."""
        log = self.log
        if isinstance(action, Write):
            await log.write(action.begin, action.content)
        elif isinstance(action, Contradicted):
            self.over.set_exception(contradiction(action, self.member.reign.epoch))
        elif isinstance(action, Cut):
            self._cuts = action.cuts
            await log.cut(outline)
            self.post(CutDone(action.cuts))
        elif isinstance(action, Restart):
            self._cuts = action.cuts
            if await log.restart(outline):
                self._end("the log restarts behind the range that the leader has deleted")
            else:
                self.post(CutDone(action.cuts))
        elif isinstance(action, DeleteBelow):
            await log.delete_below(action.begin, outline)
        elif isinstance(action, AppendEpoch):
            if self._leads(action.epoch):
                log.begin_reign(action.epoch)
                await log.append_word(Kind.EPOCH)
        elif isinstance(action, AppendMembers):
            if self._leads(self.member.reign.epoch):
                await log.append_word(Kind.MEMBERS, members_payload(action.configuration))
        elif isinstance(action, Lead) and self._leads(action.epoch):
            await log.engine.appender.flush()  # until everything below the EPOCH frame is folded
            self._lead(action.epoch)

    def _leads(self, epoch: int) -> bool:
        return isinstance(self.member.role, Leader) and self.member.reign.epoch == epoch

    def _lead(self, epoch: int) -> None:
        if self._leads(epoch):
            self.log.serve()
            self.leads, self.is_leader_silent = epoch, False
            self.changed.set()
            _log.emit(log_events.LEADER_ELECTED, epoch=epoch, member=self.member.me.member.number)

    def _depose(self, epoch: int) -> None:
        self._is_changing_members = False
        self.log.follow("this replica no longer leads")
        self.leads = None
        self.changed.set()
        _log.emit(log_events.LEADERSHIP_LOST, epoch=epoch, member=self.member.me.member.number)

    def _end(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(reason)

    def _compared(self, differing: list[str]) -> None:
        """Record a comparison of this replica's digests with the leader's, for the same position."""
        number, is_its_own = self.log.engine.committer.own[0], self.log.is_doubtful and self.leads is not None
        doubts = self.doubts
        if number <= doubts.compared or is_its_own:  # a leader equals its own digests, and its mismatch stays
            return
        doubts.compared, doubts.times = number, doubts.times + 1 if differing else 0
        if differing:
            _log.emit(log_events.REPLICA_STATE_MISMATCH, tables=differing, times=doubts.times)
            if not self.log.is_doubtful and doubts.times <= REFOLDS_MAX:
                self.background.contained("fold again", self._fold_again())
        self.log.is_doubtful = bool(differing)

    async def _fold_again(self) -> None:
        """Open the log again, with an earlier checkpoint. Replicas do so at different times, because some may be right.

        If this replica leads, it transfers leadership first.
        """
        voters = [one.number for one in self.member.log.members.voters]
        await self.clock.sleep(sum(one < self.member.me.member.number for one in voters) * REFOLD_APART_S)
        if (successor := self.most_complete()) is not None:
            with contextlib.suppress(OrtooError, TimeoutError):
                async with asyncio.timeout(HAND_OVER_S):
                    await self.hand_over(successor)
                    while not isinstance(self.member.role, Follower):  # the successor may need this replica's vote
                        await self.clock.sleep(HAND_OVER_LOOK_S)
        self._end("the state is folded again from an earlier checkpoint")

    def _appended(self, end: int, marks: tuple[Mark, ...]) -> None:
        self._is_changing_members &= not any(isinstance(one, MembersFrame) for one in marks)
        self._appended_s = self.clock.monotonic_s()
        self.post(Appended(end, marks))

    async def _ship(self, action: Ship) -> None:
        epoch = self.member.reign.epoch
        if gives_way := self._gives_way(action.begin):
            await self.clock.sleep(max(0.0, self._late_until_s - self.clock.monotonic_s()))
        try:
            content = self.log.bytes.newest(action) or await self.log.bytes.read(action.begin, action.limit)
        except (OSError, OrtooError, BadFrame) as error:  # a follower requests the frames again
            _log.emit(log_events.REPLICATION_READ_FAILED, position=action.begin, reason=str(error))
            return
        if self._leads(epoch) and (length := self._shipped(action, content)) and gives_way:
            self._late_until_s = max(self.clock.monotonic_s(), self._late_until_s) + length / CATCH_UP_BYTES_PER_S

    def _shipped(self, action: Ship, content: Sequence[Buffer]) -> int:
        """Send frames, if there are any; the number of bytes."""
        if length := sum(map(len, content)):
            epoch, committed, end = self.member.reign.epoch, self.member.log.committed, action.begin + length
            frames = Frames(epoch, action.to, action.stream, action.begin, end, (), committed, content)
            self.send(action.to.member, frames)
            self.shipments, self.shipped_bytes = self.shipments + 1, self.shipped_bytes + length
            self.post(Shipped(action.to, action.stream, end))
        return length

    def _gives_way(self, position: int) -> bool:
        """Whether a follower that needs the log from `position` on is late, and clients are served without it."""
        log = self.member.log
        is_served = self.clock.monotonic_s() - self._appended_s < SERVING_S
        return is_served and log.appended - position > LATE_BYTES > log.appended - log.committed

    # the loops

    async def _work(self) -> None:
        """Execute actions on the log, one after another, until one fails.

        Later actions are not executed. The log no longer matches the protocol's state, so it is opened again.
        """
        while True:
            action, outline = await self._log_work.get()
            if self.over.done():
                return  # for example because the disk failed
            try:
                await self._do(action, outline)
            except Overloaded as error:
                _log.emit(log_events.LOG_WRITE_FAILED, reason=str(error))
                self._end(str(error))
                await self.clock.sleep(FULL_DISK_S)
            except OrtooError as error:
                self._is_changing_members = False
                _log.emit(log_events.LOG_ACTION_FAILED, reason=str(error))
            except OSError as error:
                self.log.engine.appender.failure = f"the disk failed: {error}"
                self._end(self.log.engine.appender.failure)

    async def _save_reigns(self) -> None:
        """Save the last waiting hard state, later if no descriptor is free. A process that cannot save it ends."""
        while True:
            action = await self._reigns.get()
            is_kept = False
            while not is_kept:
                while not self._reigns.empty():
                    action = self._reigns.get_nowait()
                is_kept = await self.joining.keep_reign(action.reign, self.log.engine.work)
            self.post(ReignSaved(action.reign))

    async def _tick(self) -> None:
        """Send ticks to the protocol. A defect in it ends the process, and another replica leads."""
        while True:
            self.post(Tick())
            await self.clock.sleep(TICK_S)

    # requests of operators and the store

    async def _move_begin(self, position: int) -> None:
        """Let all replicas delete the log below `position`, except parts that a replica still needs."""
        if not isinstance(self.member.role, Leader):
            return
        most = min(position, deletable_below(self.member, CATCH_UP_KEEP_BYTES))
        begin = max((one.base for one in self.log.engine.catalog.segments if one.base <= most), default=0)
        if begin > self.member.log.begin:
            await self.log.append_word(Kind.BEGIN, begin_payload(begin))

    def asked(self, event: Event) -> None:
        """Execute an operator's request. Errors: Conflict, with the reason of a refusal."""
        self._refusal = ""
        self.post(event)
        if self._refusal:
            raise Conflict(self._refusal)

    def most_complete(self) -> MemberId | None:
        """The answering voter with the most of the log; None when this replica does not lead or is alone."""
        role = self.member.role
        if not isinstance(role, Leader):
            return None
        others = self.member.answering(self.member.log.members, self.clock.monotonic_s())
        return max(others, key=lambda one: self.member.rules.counted_position(role.stream_of(one)), default=None)

    def asked_for(self) -> Suggest | None:
        """The election request for name servers; None if this replica now follows a leader of a higher epoch."""
        member, said = self.member, self.suggestion
        if said is not None and isinstance(member.role, Follower) and member.reign.epoch == said.above:
            self.suggestion = None
        return self.suggestion

    async def copy_of(self, position: int) -> bytes:
        """The own frame at a position, for another replica. Errors: OSError. DataLoss without a whole frame."""
        if self.member.log.begin <= position < self.member.log.flushed:
            with contextlib.suppress(BadFrame):
                if content := await self.log.bytes.read_copy(position, position + 1):
                    return content
        raise DataLoss(f"replica {self.member.me.member.number} has no whole frame at {position}")

    async def stepped(self) -> None:
        """Wait until the protocol has taken an event."""
        self._step.clear()
        await self._step.wait()

    async def let_go(self, epoch: int) -> bool:
        """Wait for the end of a transfer of leadership in `epoch`; whether it succeeded."""
        while self.leads == epoch and self._hands_over():
            await self.stepped()
        if self.leads == epoch:
            self.log.take_again()
        return self.leads != epoch

    async def hand_over(self, successor: MemberId) -> None:
        """Transfer leadership to `successor`: writes are refused from now on, and accepted ones are committed first."""
        self.log.hold_back("this replica transfers leadership: retry")
        try:
            await self.log.engine.appender.flush()
            self.asked(HandOver(successor))
        finally:
            if self.leads is not None and not self._hands_over():
                self.log.take_again()

    def _hands_over(self) -> bool:
        return isinstance(self.member.role, Leader) and self.member.role.successor is not None

"""The driver: passes one event after another to the protocol, and executes the resulting actions in order."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ortoo.common.errors import DataLoss, OrtooError, Overloaded
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.copies.protocol_frames import begin_payload
from ortoo.enode.log.frame import BadFrame, FrameKind
from ortoo.enode.replication.contradiction import contradiction
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.events import (
    Action,
    AppendConfiguration,
    AppendEpoch,
    ApplyCommitted,
    BecomeLeader,
    Contradicted,
    DeleteBelow,
    Event,
    Flushed,
    FramesSent,
    HardStateSaved,
    LogAppended,
    RejectRequest,
    ReportLeaderSilent,
    RequestElection,
    Reset,
    SaveHardState,
    Send,
    SendFrames,
    SteppedDown,
    StorageChanged,
    Tick,
    Truncate,
    Truncated,
    WriteFrames,
)
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.leader import deletable_below
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary, ProtocolFrame
from ortoo.enode.replication.protocol.messages import Frames, Heartbeat, Message
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Follower, Leader
from ortoo.enode.replication.protocol.step import step
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.replication.state_comparison import StateComparison
from ortoo.enode.replication.transfer import TRANSFER_POLL_S, TRANSFER_TIMEOUT_S, LeadershipTransfer

TICK_S = 0.1
CATCH_UP_MIN_BYTES = 16 << 20
"""A follower that lacks more than this is late."""
CATCH_UP_BYTES_PER_S = 24 << 20
"""Rate of frames to late followers while clients are served, because both share processor and disk."""
RECENT_APPEND_S = 0.5
"""Clients count as served for this time after an append."""
CATCH_UP_RETAINED_BYTES = 1 << 30
"""Maximum of the log that is kept for a follower that is behind."""
REFOLD_STAGGER_S = 10.0
"""Delay of a replica before it folds its state again, for each replica with a lower number; a majority serves."""
REFOLDS_MAX = 3
"""Maximum of attempts to fold from an earlier checkpoint; later a replica only reports that its state differs."""
FULL_DISK_RETRY_S = 1.0
"""Delay before a follower retries a write to a full disk."""
_log = get_logger("replication")


@dataclass(eq=False)
class Driver(LeadershipTransfer):
    """One start of a replica. It belongs to the event loop that opened its log."""

    log: ReplicatedLog
    replica: Replica
    """The current state of the protocol; at first from `log` and `joining`."""
    membership: ReplicaMembership
    send: Callable[[ReplicaId, Message], object]
    """Sends a message to another replica; it may be lost."""
    background: Background
    clock: Clock
    comparison: StateComparison
    election_request: RequestElection | None = None
    """The election request for name servers; it is removed when a higher epoch is known."""
    is_leader_silent: bool = False
    leading_epoch: int | None = None
    """The epoch in which this replica serves clients; None while it does not."""
    reopens: bool = True
    """Whether the log is opened again when the disk has failed. Otherwise it stays open for readers."""
    sent_messages: int = 0
    sent_bytes: int = 0
    leader_committed: int = 0
    """The largest committed position that a leader has announced."""

    def __post_init__(self) -> None:
        """Subscribe to the events of the log."""
        log = self.log
        self.changed = asyncio.Event()
        """Set when the reported state or the leader has changed."""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the log must be opened again; the replica then starts again."""
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._step = asyncio.Event()
        self._ticks_needed = asyncio.Event()
        self._truncations = 0
        """The number of completed truncations; flush events refer to the log after these."""
        self._is_changing_configuration, self._refusal = False, ""
        self._appended_s = self._paused_until_s = 0.0
        """Time of the last append; time from which more frames may be sent to late followers."""
        self._log_actions: asyncio.Queue[tuple[Action, LogSummary]] = asyncio.Queue()
        self._hard_states: asyncio.Queue[SaveHardState] = asyncio.Queue()
        log.current_summary = lambda: self.replica.log
        log.on_appended = self._on_appended
        log.on_flushed = lambda position: self.post(Flushed(self._truncations, position))
        log.on_checkpoint_complete = lambda: self._end_log("a checkpoint has come, and the log can be folded from it")
        log.engine.appender.on_failed = lambda reason: self._end_log(reason) if self.reopens else None
        log.engine.committer.on_compared = self._on_compared
        log.may_read = lambda: self.replica.may_read(self.clock.monotonic_s())
        log.engine.housekeeping.move_log_begin = self._move_begin

    def start(self) -> None:
        """Start the loops."""
        self.background.spawn("disk", self._run_log_actions())
        self.background.spawn("reigns", self._save_hard_states())
        self.background.spawn("ticks", self._tick())

    def post(self, event: Event) -> None:
        """Pass an event to the protocol, and execute the resulting actions."""
        if self.is_leader_silent and isinstance(event, Heartbeat) and event.epoch >= self.replica.hard_state.epoch:
            self.is_leader_silent = False
            self.changed.set()
        if isinstance(event, Heartbeat):
            self.leader_committed = max(self.leader_committed, event.committed)
        self.log.report_progress()
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                self.replica, actions = step(self.replica, self._events.popleft(), self.clock.monotonic_s())
                for action in actions:
                    self._perform(action)
        finally:
            self._is_stepping = False
        self._step.set()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Send):
            self.send(action.to, action.message)
        elif isinstance(action, SendFrames):
            if self._is_throttled(action.begin) or not self._send_frames(action, self.log.bytes.cached_frames(action)):
                self.background.run_contained("ship", self._read_and_send(action))
        elif isinstance(action, ApplyCommitted):
            self.log.commit(action.position)
        elif isinstance(action, SaveHardState):
            membership, reign = self.membership, action.hard_state
            if self._hard_states.empty() and membership.may_defer(reign, self.replica.log.configuration):
                membership.stored = replace(membership.stored, hard_state=reign)
                self.post(HardStateSaved(reign))
            else:
                self._hard_states.put_nowait(action)
        elif isinstance(action, SteppedDown):
            self._step_down(action.epoch)
        elif isinstance(action, RequestElection):
            self.election_request = action
            self.changed.set()
        elif isinstance(action, ReportLeaderSilent):
            self.is_leader_silent = True
            self.changed.set()
        elif isinstance(action, RejectRequest):
            self._refusal = action.reason
        elif isinstance(action, AppendConfiguration) and self._is_changing_configuration:
            self._refusal = "another change of the replicas is being written: retry in a moment"
        else:
            self._is_changing_configuration |= isinstance(action, AppendConfiguration)
            self._log_actions.put_nowait((action, self.replica.log))

    async def _perform_on_log(self, action: Action, summary: LogSummary) -> None:
        """Execute an action on the log that was decided for the log summary `summary`."""
        log = self.log
        if isinstance(action, WriteFrames):
            await log.write(action.begin, action.content)
        elif isinstance(action, Contradicted):
            self.ended.set_exception(contradiction(action, self.replica.hard_state.epoch))
        elif isinstance(action, Truncate):
            self._truncations = action.truncations
            await log.truncate(summary)
            self.post(Truncated(action.truncations))
        elif isinstance(action, Reset):
            self._truncations = action.truncations
            if await log.reset(summary):
                self._end_log("the log restarts behind the range that the leader has deleted")
            else:
                self.post(Truncated(action.truncations))
        elif isinstance(action, DeleteBelow):
            await log.delete_below(action.begin)
            self._step.set()
        elif isinstance(action, AppendEpoch):
            if self._is_leader_of(action.epoch):
                self._count_followers()
                log.start_epoch(action.epoch)
                await log.append_protocol_frame(FrameKind.EPOCH)
        elif isinstance(action, AppendConfiguration):
            if self._is_leader_of(self.replica.hard_state.epoch):
                await self.membership.save(log.engine.work)
                await log.append_configuration(action.configuration)
        elif isinstance(action, BecomeLeader) and self._is_leader_of(action.epoch):
            await log.engine.appender.flush()  # until everything below the EPOCH frame is folded
            self._become_leader(action.epoch)

    def _is_leader_of(self, epoch: int) -> bool:
        return isinstance(self.replica.role, Leader) and self.replica.hard_state.epoch == epoch

    def _become_leader(self, epoch: int) -> None:
        if self._is_leader_of(epoch):
            self.log.start_serving()
            self.leading_epoch, self.is_leader_silent = epoch, False
            self.changed.set()
            _log.emit(log_events.LEADER_ELECTED, epoch=epoch, replica=self.replica.identity.replica.number)

    def _step_down(self, epoch: int) -> None:
        self._is_changing_configuration = False
        self.log.follow("this replica no longer leads")
        self.leading_epoch = None
        self._ticks_needed.set()
        self.changed.set()
        _log.emit(log_events.LEADERSHIP_LOST, epoch=epoch, replica=self.replica.identity.replica.number)

    def _end_log(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    def _on_compared(self, differing: list[str]) -> None:
        """Record a comparison of this replica's digests with the leader's, for the same position."""
        number, is_own = self.log.engine.committer.digests[0], self.log.is_suspect and self.leading_epoch is not None
        comparison = self.comparison
        if number <= comparison.last_compared or is_own:  # a leader equals its own digests, and its mismatch stays
            return
        comparison.last_compared, comparison.mismatches = number, comparison.mismatches + 1 if differing else 0
        if differing:
            _log.emit(log_events.REPLICA_STATE_MISMATCH, tables=differing, times=comparison.mismatches)
            if not self.log.is_suspect and comparison.mismatches <= REFOLDS_MAX:
                self.background.run_contained("fold again", self._refold())
        self.log.is_suspect = bool(differing)

    async def _refold(self) -> None:
        """Open the log again, with an earlier checkpoint. A leader transfers leadership first.

        Replicas do so at different times, because some may have the correct state.
        """
        voters = [one.number for one in self.replica.log.configuration.voters]
        await self.clock.sleep(sum(one < self.replica.identity.replica.number for one in voters) * REFOLD_STAGGER_S)
        if (successor := self.most_complete_voter()) is not None:
            with contextlib.suppress(OrtooError, TimeoutError):
                async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                    await self.transfer_leadership(successor)
                    while not isinstance(self.replica.role, Follower):  # the successor may need this replica's vote
                        await self.clock.sleep(TRANSFER_POLL_S)
        self._end_log("the state is folded again from an earlier checkpoint")

    def _on_appended(self, end: int, protocol_frames: tuple[ProtocolFrame, ...]) -> None:
        self._is_changing_configuration &= not any(isinstance(one, ConfigurationFrame) for one in protocol_frames)
        self._appended_s = self.clock.monotonic_s()
        self.post(LogAppended(end, protocol_frames))
        if protocol_frames:
            self._count_followers()

    def _count_followers(self) -> None:
        self.log.bytes.has_followers = len(self.replica.log.configuration.replicas) > 1
        self._ticks_needed.set()

    async def _read_and_send(self, action: SendFrames) -> None:
        epoch = self.replica.hard_state.epoch
        if gives_way := self._is_throttled(action.begin):
            await self.clock.sleep(max(0.0, self._paused_until_s - self.clock.monotonic_s()))
        try:
            content = self.log.bytes.cached_frames(action) or await self.log.bytes.read(action.begin, action.limit)
        except (OSError, OrtooError, BadFrame) as error:  # a follower requests the frames again
            _log.emit(log_events.REPLICATION_READ_FAILED, position=action.begin, reason=str(error))
            return
        if self._is_leader_of(epoch) and (length := self._send_frames(action, content)) and gives_way:
            self._paused_until_s = max(self.clock.monotonic_s(), self._paused_until_s) + length / CATCH_UP_BYTES_PER_S

    def _send_frames(self, action: SendFrames, content: Sequence[Buffer]) -> int:
        """Send frames, if there are any; the number of bytes."""
        if length := sum(map(len, content)):
            epoch, committed, end = self.replica.hard_state.epoch, self.replica.log.committed, action.begin + length
            frames = Frames(epoch, action.to, action.stream, action.begin, end, (), committed, content)
            self.send(action.to.replica, frames)
            self.sent_messages, self.sent_bytes = self.sent_messages + 1, self.sent_bytes + length
            self.post(FramesSent(action.to, action.stream, end))
        return length

    def _is_throttled(self, position: int) -> bool:
        """Whether a follower that needs the log from `position` on is late, and clients are served without it."""
        log = self.replica.log
        has_recent_appends = self.clock.monotonic_s() - self._appended_s < RECENT_APPEND_S
        return has_recent_appends and log.appended - position > CATCH_UP_MIN_BYTES > log.appended - log.committed

    # the loops

    async def _run_log_actions(self) -> None:
        """Execute actions on the log, one after another, until one fails.

        Later actions are not executed. The log no longer matches the protocol's state, so it is opened again.
        """
        while True:
            action, summary = await self._log_actions.get()
            if self.ended.done():
                return  # for example because the disk failed
            try:
                await self._perform_on_log(action, summary)
            except Overloaded as error:
                _log.emit(log_events.LOG_WRITE_FAILED, reason=str(error))
                self._end_log(str(error))
                await self.clock.sleep(FULL_DISK_RETRY_S)
            except OrtooError as error:
                self._is_changing_configuration = False
                _log.emit(log_events.LOG_ACTION_FAILED, reason=str(error))
            except OSError as error:
                self.log.engine.appender.failure = f"the disk failed: {error}"
                self._end_log(self.log.engine.appender.failure)

    async def _save_hard_states(self) -> None:
        """Save the last waiting hard state, later if no descriptor is free. A process that cannot save it ends."""
        while True:
            action = await self._hard_states.get()
            is_kept = False
            while not is_kept:
                while not self._hard_states.empty():
                    action = self._hard_states.get_nowait()
                is_kept = await self.membership.keep_reign(action.hard_state, self.log.engine.work)
            self.post(HardStateSaved(action.hard_state))

    async def _tick(self) -> None:
        """Send ticks to the protocol. A defect in it ends the process, and another replica leads.

        A leader that never had other replicas waits for none, so it needs no ticks.
        """
        while True:
            if self._can_store != self.replica.can_store:
                self.post(StorageChanged(self._can_store))
            self.post(Tick())
            await self.clock.sleep(TICK_S)
            log = self.log
            is_alone = log.engine.appender.commit_limit is None and not log.bytes.has_followers
            if is_alone and self.leading_epoch is not None:
                self._ticks_needed.clear()
                await self._ticks_needed.wait()

    @property
    def _can_store(self) -> bool:
        """Whether the disk has room for new frames; for a follower, which may lead soon, room for another segment."""
        appender = self.log.engine.appender
        is_short = appender.spares.is_short and not isinstance(self.replica.role, Leader)
        return not (appender.full or appender.starved or is_short)

    # requests of operators and the store

    async def _move_begin(self, position: int) -> None:
        """Let all replicas delete the log below `position`, except parts that a replica still needs."""
        if not isinstance(self.replica.role, Leader):
            return
        self.log.report_progress()
        limit = min(position, deletable_below(self.replica, CATCH_UP_RETAINED_BYTES))
        begin = max((one.base for one in self.log.engine.catalog.segments if one.base <= limit), default=0)
        if begin > self.replica.log.begin:
            await self.log.append_protocol_frame(FrameKind.BEGIN, begin_payload(begin))
            while isinstance(self.replica.role, Leader) and self.log.engine.catalog.begin_position < begin:
                await self.wait_for_step()

    def current_election_request(self) -> RequestElection | None:
        """The election request for name servers; None if this replica now follows a leader of a higher epoch."""
        replica, request = self.replica, self.election_request
        if request is not None and isinstance(replica.role, Follower) and replica.hard_state.epoch == request.above:
            self.election_request = None
        return self.election_request

    async def frame_copy(self, position: int) -> bytes:
        """The own frame at a position, for another replica. Errors: OSError. DataLoss without a whole frame."""
        if self.replica.log.begin <= position < self.replica.log.flushed:
            with contextlib.suppress(BadFrame):
                if content := await self.log.bytes.read_copy(position, position + 1):
                    return content
        raise DataLoss(f"replica {self.replica.identity.replica.number} has no whole frame at {position}")

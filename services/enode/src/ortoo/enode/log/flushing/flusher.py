"""The flushing end of the log: writes accepted frames in groups, and holds the groups until they are committed.

A group is first submitted: it goes to the followers and to this disk at the same time. The next group is submitted
when this one is durable here, or when the replication protocol has committed it. So a leader whose disk is slower than
those of a majority acknowledges at the speed of the majority. Its disk then writes several groups at once. If too many
bytes wait for its disk, the next group waits, too, because frames without a limit would fill the memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Overloaded, Unavailable
from ortoo.common.process.clock import Clock
from ortoo.enode.disk.data_dir import FolderGone
from ortoo.enode.disk.disk import FULL, NoDescriptor
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.flushing.flush_group import FlushGroup, PendingChanges
from ortoo.enode.log.flushing.hang_watch import HangWatch
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.log.spares import SpareSegments

NOT_ACKNOWLEDGING = "the store acknowledges nothing until it is opened again"


@dataclass(kw_only=True, eq=False)
class Flusher:
    """Writes accepted frames to the disk in groups, and holds the groups until they are committed."""

    active: Segment
    appended_position: int
    """The position of the next frame; at the opening everything before it is durable."""
    store_open: int
    stored_at_ms: int
    """The store time of the last frame."""
    settings: StoreSettings
    clock: Clock
    work: DiskWork
    spares: SpareSegments
    on_committed: Callable[[FlushGroup], None]
    """Called with each committed group, before its waiters are answered."""
    failure: str = ""
    """The reason why nothing is acknowledged any more; empty without a failure."""
    is_folder_gone: bool = False
    """Whether the reason is that the store's folder was moved away, replaced or emptied."""
    guard: Callable[[], object] = lambda: None
    """Called outside the event loop when a group is on the disk; raises FolderGone."""
    full: str = ""
    """The reason why sends are refused until a segment can be made, mostly a full disk; empty otherwise."""
    starved: str = ""
    """The reason why sends are refused until a file can be opened again; empty otherwise."""
    refusal: str = ""
    """The reason why a replica refuses writes: another replica leads, or no other replica can be reached."""
    barred: str = ""
    """The reason why writes are refused: another store of the enode is registered, or may be."""
    may_place: bool = True
    """Whether this process assigns positions; a follower gets them from its leader."""
    commit_limit: int | None = None
    """Frames behind it are not committed, even if they are durable here. Own frames before it are committed, even if
    they are not durable here, because a majority of disks has them. None = all durable frames are committed."""
    epoch: int = 0
    """The epoch of written frames; 0 before the first EPOCH frame."""
    log_mark: int = 0
    """The fingerprint of the log, which is in all frames except those of messages."""
    on_submitted: Callable[[FlushGroup], object] = lambda group: None
    """Called with each group when it goes to the disk, to send it to the followers, too."""
    on_durable: Callable[[FlushGroup], object] = lambda group: None
    """Called with each group when it is on this disk."""
    on_failed: Callable[[str], object] = lambda reason: None
    """Called once with the reason when nothing is acknowledged any more."""
    pending_bytes: int = 0
    flushes: int = 0
    flush_s: float = 0.0
    """Total time of all flushes."""

    def __post_init__(self) -> None:
        """Start without accepted frames."""
        self.durable_position = self.appended_position
        self.committed_position = self.appended_position
        """Everything before it is folded, visible and answered; later frames may still be truncated.

        It may be above `durable_position` while this replica leads.
        """
        self._submitted_position = self.appended_position
        self.next_segments: list[Segment] = []
        """Segments with assigned positions whose predecessors are not committed yet."""
        self._loop = asyncio.get_running_loop()
        self._groups: deque[FlushGroup] = deque()
        self._changes = PendingChanges()
        self._unwritten: deque[FlushGroup] = deque()
        """Submitted groups that wait for the current write to this disk."""
        self._writing: Sequence[FlushGroup] = ()
        """The groups of the current write."""
        self._uncommitted: deque[FlushGroup] = deque()
        """Submitted groups that are not committed yet."""
        self._is_submit_scheduled = False
        self._is_flush_requested = False
        self._submitted_s = 0.0
        self._watch = HangWatch()
        self._retry: FlushGroup | None = None
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self.flush_due = asyncio.Event()
        """Set while frames wait for which no caller requested an immediate flush."""
        self.advanced = asyncio.Event()
        """Set when the durable position grows; cleared by the task that follows it."""
        self.flushed = asyncio.Event()
        """Set by each flush; cleared by the task that detects idleness."""

    def check_disk(self) -> None:
        """Refuse work on a failed disk. Frames that were not durable when the disk failed are never acknowledged.

        Errors: Unavailable.
        """
        if self.failure:
            raise Unavailable(f"{self.failure}: {NOT_ACKNOWLEDGING}")

    def add_waiter(self, waiter: asyncio.Future[Any], answer: Any, *, early: bool = False) -> None:
        """Give `waiter` the `answer` when all accepted frames are committed; with `early`, also if they are flushed."""
        if not self._groups:
            self._groups.append(FlushGroup())
        group = self._groups[-1]
        (group.disk_waiters if early else group.waiters).append((waiter, answer))

    def truncate_to(self, position: int, committed: Segment) -> None:
        """Truncate the log to `position` and continue there. No frames may be on their way to the disk.

        `committed` is the segment that holds `position`, unless a segment in `next_segments` holds it.
        """
        for group in self._uncommitted:
            group.entries = [entry for entry in group.entries if entry.header.position < position]
            group.end_position = min(group.end_position, position)
        self.appended_position = self.durable_position = self._submitted_position = position
        self._drop_segments(position)
        self.active = self.next_segments[-1] if self.next_segments else committed
        self.active.end = None

    def _drop_segments(self, position: int) -> None:
        """Forget the segments that begin behind a position, because they have no frames any more."""
        while self.next_segments and self.next_segments[-1].base > position:
            self.spares.put_back(self.next_segments.pop())

    def hold_recovered(self, groups: Sequence[FlushGroup]) -> None:
        """Hold groups that are durable but not known to be committed."""
        for group in groups:
            group.is_durable = True
        self._uncommitted.extend(groups)
        self.pending_bytes += sum(group.bytes for group in groups)
        self.appended_position = self.durable_position = self._submitted_position = groups[-1].end_position

    def seal_changes(self) -> None:
        """Put the waiting changes into one frame."""
        raise NotImplementedError

    def _drop_changes(self) -> list[asyncio.Future[Any]]:
        """Forget the waiting changes; returns their waiters."""
        dropped, self._changes = self._changes, PendingChanges()
        return [waiter for waiter, _ in dropped.waiters]

    def request_flush(self) -> None:
        """As soon as the previous group is durable or committed, submit all frames that are accepted by then."""
        self._is_flush_requested = True
        self._schedule_submit()

    def _schedule_submit(self) -> None:
        if not self._is_submit_scheduled and not self._is_in_flight:
            self._is_submit_scheduled = True
            self._loop.call_soon(self._submit)

    @property
    def _is_in_flight(self) -> bool:
        """Whether the last submitted group is neither durable here nor committed, or this disk is too far behind."""
        if self._submitted_position - self.durable_position >= self.settings.pending_bytes_max:
            return True
        return self._submitted_position > max(self.durable_position, self.committed_position)

    async def flush(self) -> None:
        """Wait until everything accepted so far is committed. Errors: Unavailable when the disk failed."""
        self.check_disk()
        waiter = self._loop.create_future()
        self.seal_changes()
        self.add_waiter(waiter, None)
        self.request_flush()
        await waiter

    async def wait_committed(self) -> None:
        """Wait until everything accepted so far is committed. Errors: those of `flush`."""
        if self._groups or self._uncommitted or self._changes.changes:
            await self.flush()

    async def wait_idle(self) -> None:
        """Wait until no frames are on their way to the disk."""
        await self._idle.wait()

    def _submit(self) -> None:
        self._is_submit_scheduled = False
        if self._is_in_flight or self.failure:
            return
        self.seal_changes()
        if not self._groups:
            self._is_flush_requested = False
            return
        group = self._groups.popleft()
        self._is_flush_requested = bool(self._groups)
        self._uncommitted.append(group)
        self._unwritten.append(group)
        if group.parts:
            group.set_durable_below(self.durable_position)
            self._submitted_position = group.end_position
            self.on_submitted(group)
        self._write()
        if not group.parts:
            self.release_committed()

    def _write(self) -> None:
        """Write the submitted groups that fit into one write, unless a write is in progress."""
        if self._writing or not self._unwritten or self.failure:
            return
        groups = [self._unwritten.popleft()]
        free_bytes = self.settings.flush_bytes_max - groups[0].bytes
        while self._unwritten and self._unwritten[0].bytes <= free_bytes:
            groups.append(self._unwritten.popleft())
            free_bytes -= groups[-1].bytes
        self._writing = groups
        joined = FlushGroup.joined(self._writing)
        if joined.parts:
            joined.guard = self.guard
            self._submitted_s = self.clock.monotonic_s()
            self.work.flush(joined, self._on_flushed)
        else:
            self._on_flushed(joined, None)

    def _on_flushed(self, joined: FlushGroup, error: BaseException | None) -> None:
        if error is not None and self.refuse_for(error):
            self._retry = joined
            return
        groups, self._writing = self._writing, ()
        if error is not None or self.failure:
            self._fail(error, groups)
            return
        for group in groups:
            group.is_durable = True
            if group.is_committed:
                self.pending_bytes -= group.bytes
        if joined.parts:
            self.flushes += 1
            self.flush_s += self.clock.monotonic_s() - self._submitted_s
            self.durable_position = joined.end_position
            self.advanced.set()
            self.on_durable(joined)
        if self.may_place:
            for group in groups:
                _answer_waiters(group.disk_waiters)
        self._write()
        if self._is_flush_requested or len(self._groups) > 1:
            self._submit()
        self._note_idle()
        self.release_committed()

    def _note_idle(self) -> None:
        if not self._writing and not self._unwritten and not self._groups:
            self._idle.set()

    def release_committed(self) -> None:
        """Apply and answer, in order, the groups that may be committed.

        Invariant: no waiter is answered before its group and all earlier groups are committed and folded.
        Copies of another leader's frames also wait for this disk, because their readers find them only there.
        """
        while self._uncommitted and self._may_commit(self._uncommitted[0]):
            group = self._uncommitted.popleft()
            group.is_committed = True
            if group.is_durable:
                self.pending_bytes -= group.bytes
            try:
                self.on_committed(group)
            except Exception as defect:
                self._fail(defect, (group,))
                raise
            self.committed_position = max(self.committed_position, group.end_position)
            _answer_waiters(group.waiters)
            _answer_waiters(group.disk_waiters)
            self.flushed.set()
        if self._writing and (self._is_flush_requested or len(self._groups) > 1):
            self._schedule_submit()

    def _may_commit(self, group: FlushGroup) -> bool:
        if self.commit_limit is None:
            return group.is_durable
        return group.end_position <= self.commit_limit and (group.is_durable or not group.is_copy)

    def drop_unsubmitted(self, reason: str) -> None:
        """Drop accepted frames that were not handed to the disk yet. No follower has received these frames.

        All waiters get the error that the outcome is unknown. Copies of a leader's frames stay, because a follower
        counts copies when they are accepted.
        """
        waiters = [waiter for one in self._waiting_groups() for waiter in one.take_waiters()]
        waiters += self._drop_changes()
        groups = [one for one in self._groups if not one.is_copy]
        self._groups = deque(one for one in self._groups if one.is_copy)
        for group in groups:
            self.pending_bytes -= group.bytes
        placed = [group for group in groups if group.parts]
        if placed:
            first = placed[0].parts[0]
            self.appended_position = first.position
            self.active = first.segment
            first.segment.end = None
        self._drop_segments(self.active.base)
        _fail_waiters(waiters, reason)
        self._is_flush_requested = bool(self._groups)
        self._note_idle()

    def _waiting_groups(self) -> dict[FlushGroup, None]:
        """All groups that are not committed, or not durable here, each once."""
        return dict.fromkeys((*self._uncommitted, *self._writing, *self._unwritten, *self._groups))

    def refuse_for(self, error: BaseException) -> bool:
        """Refuse sends until space or descriptors are free. Returns False for an error that means a failed disk."""
        if isinstance(error, NoDescriptor):
            self.starved = error.message
        elif isinstance(error, Overloaded):
            self.full = error.message
        elif isinstance(error, OSError) and error.errno in FULL:
            self.full = f"the disk is full: {error}"
        else:
            return False
        return True

    @property
    def readable_position(self) -> int:
        """The end of the committed log that readers find on this disk; committed batches behind it are in memory."""
        return min(self.committed_position, self.durable_position)

    @property
    def flushing_s(self) -> float:
        """Duration of the current write to this disk so far; 0 if there is none, or if it waits for space."""
        is_writing = bool(self._writing) and self._retry is None
        return self.clock.monotonic_s() - self._submitted_s if is_writing else 0.0

    def check_hanging(self) -> str:
        """Look at the current write. Returns why the disk counts as hanging; empty while it answers."""
        return self._watch.look(self._submitted_s, self.flushing_s)

    @property
    def is_stuck(self) -> bool:
        """Whether a group waits for space on the disk, or for a descriptor."""
        return self._retry is not None

    def retry(self) -> None:
        """Retry a group that failed on a full disk, or without a descriptor; called by the check of the disk."""
        self.full = self.starved = ""
        group, self._retry = self._retry, None
        if group is not None and not self.failure:
            self._submitted_s = self.clock.monotonic_s()
            self.work.flush(group, self._on_flushed)

    def _fail(self, error: BaseException | None, groups: Sequence[FlushGroup] = ()) -> None:
        """Stop all acknowledgements, also for the waiters of `groups`, which are no longer in a queue."""
        if error is not None and not self.failure:
            self.is_folder_gone = isinstance(error, FolderGone)
            self.failure = str(error) if self.is_folder_gone else f"the disk failed: {error}"
            self.on_failed(self.failure)
        self.fail_waiters(groups)

    def give_up(self, error: FolderGone) -> None:
        """Stop all acknowledgements, because the next start would not find new frames."""
        self._fail(error)

    def fail_waiters(self, groups: Sequence[FlushGroup] = ()) -> None:
        """Fail all waiters with the error that the outcome is unknown."""
        waiters = [waiter for one in (*groups, *self._waiting_groups()) for waiter in one.take_waiters()]
        self._uncommitted.clear()
        self._unwritten.clear()
        self._groups.clear()
        waiters += self._drop_changes()
        _fail_waiters(waiters, self.failure)
        self._idle.set()


def _answer_waiters(waiters: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, answer in waiters:
        if not waiter.done():
            waiter.set_result(answer)


def _fail_waiters(waiters: list[asyncio.Future[Any]], reason: str) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(Unavailable(f"{reason}; whether this was stored is unknown"))
            waiter.exception()  # a caller that waits for several gets the first error only

"""Checkpoints of an open store: decides when the next one is due, and writes it into the log."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ortoo.common.errors import NotLeader, Overloaded
from ortoo.enode.index.catalog import LogCatalog
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.checkpoint import SLICE_HEAD_BYTES, CheckpointSlice, complete_checkpoints, split_slices
from ortoo.enode.log.frame import frame_bytes
from ortoo.enode.log.queue_index import SliceLocation
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.state.fold import State

CHECKPOINTS_KEPT = 2
"""Complete checkpoints behind each deleted segment, so that damage to the newest one does not lose the state."""
CONTENT_PER_SLICE_MAX = 4
"""While a checkpoint is written, the content of the log grows at most by about this multiple of its bytes."""
AGE_BYTES_PER_S = 64 << 10
"""Average rate of checkpoints that are written only because segments are too old."""
SLICES_AT_ONCE = 4
"""Slices that a late checkpoint makes before it yields to other tasks."""


def is_due(settings: StoreSettings, *, content_bytes: int, changes: int, size_bytes: int) -> bool:
    """Whether the next checkpoint is due.

    `content_bytes` and `changes` were written since the newest complete checkpoint began, which takes `size_bytes` of
    the log. A checkpoint is due after a number of bytes, or of changes, that grows with `size_bytes`. The slices of a
    checkpoint do not count as content, so a checkpoint never triggers another one, even if it fills several segments.
    """
    times = max(1.0, size_bytes / settings.segment_bytes)
    return content_bytes >= times * settings.segment_bytes or changes >= times * settings.checkpoint_records


def is_worth_it(*, blocked_bytes: int, size_bytes: int) -> bool:
    """Whether to write checkpoints so that retention can delete segments of `blocked_bytes`.

    Before the deletion, as many checkpoints must be written as are kept, and the kept ones may lie in these segments.
    The deletion must free more bytes than both take.
    """
    return blocked_bytes > 2 * CHECKPOINTS_KEPT * size_bytes


def is_affordable(*, elapsed_s: float, size_bytes: int) -> bool:
    """Whether a checkpoint may be written, `elapsed_s` after the newest one, so that too old segments can be deleted.

    Such a checkpoint may write more than the deletion frees. So these checkpoints write at most AGE_BYTES_PER_S on
    average.
    """
    return size_bytes <= elapsed_s * AGE_BYTES_PER_S


@dataclass(slots=True)
class _Progress:
    """A checkpoint whose slices are being committed."""

    checkpoint_id: int
    begin_content: int
    """The content of the log before it."""
    begin_changes: int
    size_bytes: int = 0


@dataclass(kw_only=True, eq=False)
class Checkpoints:
    """Tracks the complete checkpoints, counts later content and changes, and writes the next checkpoint."""

    appender: Appender
    catalog: LogCatalog
    state: State
    size_bytes: int
    """Bytes of the newest complete checkpoint in the log; after a clean stop the length of the encoded state."""

    def __post_init__(self) -> None:
        """Find the complete checkpoints in the committed log."""
        appender = self.appender
        self._settings, self._clock = appender.settings, appender.clock
        self.due = asyncio.Event()
        """Set when a checkpoint is due."""
        self.compare_states: Callable[[], Awaitable[None]] | None = None
        """Makes all replicas compare their states; None without other replicas."""
        self.begins: deque[int] = deque(maxlen=CHECKPOINTS_KEPT)
        """The positions from which the newest complete checkpoints fold, the older first."""
        self._slice_bytes = 0
        """Bytes of all slices that were committed since the store was opened."""
        self._changes = 0
        """State changes that were committed since then."""
        self._progress: _Progress | None = None
        self._is_writing = self._is_postponed = False
        self._completed_s = self._clock.monotonic_s()
        """When the newest complete checkpoint was committed, or the store was opened."""
        self._tried_bytes = 0
        """Bytes written of a failed checkpoint since the newest complete one."""
        slices = [one for contents in self.catalog.contents.values() for one in contents.slices]
        complete = complete_checkpoints([*slices, *self.catalog.active_parts.slices])
        self.begins.extend(parts[-1].fold_from for parts in reversed(complete[:CHECKPOINTS_KEPT]))
        newest = self.begins[-1] if self.begins else self.catalog.begin_position
        self._begin_content = min(newest + self.size_bytes, self.content)
        """The content of the log when the newest complete checkpoint began."""
        self._begin_changes = 0
        """The changes that were committed by then."""

    @property
    def content(self) -> int:
        """Bytes of the log without checkpoint slices. Only differences of two values are meaningful."""
        return self.appender.committed_position - self._slice_bytes

    @property
    def foldable_from(self) -> int:
        """The position below which segments may be deleted, because all kept checkpoints fold from there or later."""
        return self.begins[0] if len(self.begins) == CHECKPOINTS_KEPT else 0

    def count_changes(self, count: int) -> None:
        """Count the state changes of a committed frame."""
        self._changes += count

    def count_slice(self, at: SliceLocation, frame_bytes: int) -> None:
        """Count a committed slice; the last one completes its checkpoint."""
        if at.number == 0:
            self._progress = _Progress(at.checkpoint_id, at.fold_from - self._slice_bytes, self._changes)
        self._slice_bytes += frame_bytes
        progress = self._progress
        if progress is None or progress.checkpoint_id != at.checkpoint_id:
            return
        progress.size_bytes += frame_bytes
        if at.total:
            self.begins.append(at.fold_from)
            self.size_bytes = progress.size_bytes
            self._begin_content, self._begin_changes = progress.begin_content, progress.begin_changes
            self._progress, self._tried_bytes = None, 0
            self._completed_s = self._clock.monotonic_s()

    def check_due(self) -> None:
        """Request a checkpoint if it is due after frames were committed."""
        if self._is_writing or self._is_postponed:
            return
        content_bytes, changes = self.content - self._begin_content, self._changes - self._begin_changes
        if is_due(self._settings, content_bytes=content_bytes, changes=changes, size_bytes=self.size_bytes):
            self.due.set()

    def request_for_retention(self, blocked_bytes: int, *, is_by_age: bool) -> None:
        """Request a checkpoint, if its cost is justified, because the kept ones block the deletion of `blocked_bytes`.

        `is_by_age`: some of these bytes exceed the age limit.
        """
        if self._is_writing or self._is_postponed:
            return
        elapsed_s = self._clock.monotonic_s() - self._completed_s
        if is_worth_it(blocked_bytes=blocked_bytes, size_bytes=self.size_bytes) or (
            is_by_age and is_affordable(elapsed_s=elapsed_s, size_bytes=self.size_bytes)
        ):
            self.due.set()

    async def retry_postponed(self) -> None:
        """Write the postponed checkpoint if the disk has room for it now."""
        if self._is_postponed and not self._is_writing and await self._has_room():
            self.due.set()

    async def write(self) -> None:
        """Write the whole state into the log, slice by slice. Each slice has the state at the moment of its write.

        The state is folded up to the committed position. A start folds durable frames beyond that position again.
        Errors: Overloaded (no room on the disk), NotLeader, Unavailable. After an error the checkpoint is postponed.
        """
        self._is_writing = self._is_postponed = True
        try:
            if not await self._has_room():
                raise Overloaded(f"the disk has no room for a checkpoint of {self.size_bytes} bytes: free some")
            if self.compare_states is not None:
                await self.compare_states()
            await self._write_slices()
            self._is_postponed = False
        finally:
            self._is_writing = False

    async def _write_slices(self) -> None:
        appender = self.appender
        epoch, fold_from, checkpoint_id = appender.epoch, appender.committed_position, appender.appended_position
        begin_content, size_bytes = self.content, 0
        slices = split_slices(self.state.checkpoint(), self._settings.checkpoint_slice_bytes)
        for number, (changes, is_last) in enumerate(slices):
            total = number + 1 if is_last else 0
            part = CheckpointSlice(checkpoint_id, number, total, fold_from, appender.committed_position, changes)
            length = SLICE_HEAD_BYTES + len(changes)
            if not appender.fits(length):
                await appender.reserve_space(length, is_state=True)
            if not appender.may_place or appender.epoch != epoch:
                raise NotLeader(appender.refusal)
            appender.append_slice(part)
            size_bytes += frame_bytes(length)
            self._tried_bytes = max(self._tried_bytes, size_bytes)
            if is_last or self.content - begin_content <= CONTENT_PER_SLICE_MAX * size_bytes:
                await appender.flush()
            elif number % SLICES_AT_ONCE == 0:  # late: waiting for flushes takes too long
                await self._clock.sleep(0)

    async def _has_room(self) -> bool:
        """Whether a checkpoint fits into the rest of the active segment and half of the free space."""
        appender = self.appender
        needed_bytes = max(self.size_bytes, self._tried_bytes)
        missing_bytes = needed_bytes - (appender.active.limit - appender.appended_position)
        return missing_bytes <= 0 or missing_bytes <= await appender.spares.room_bytes() // 2

"""Folds the state again, from the newest whole checkpoint along the log to its end."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import InitVar, dataclass
from itertools import zip_longest

from ortoo.common.errors import DataLoss
from ortoo.enode.changes.kinds import OffsetsSkipped, decode_changes
from ortoo.enode.log.checkpoint import SLICE_HEAD_BYTES, CheckpointSlice, complete_checkpoints, decode_slice
from ortoo.enode.log.frame import BadFrame, FrameFlag, FrameHeader, FrameKind, frame_bytes
from ortoo.enode.log.queue_index import SliceLocation
from ortoo.enode.log.scan import Hole, read_body, read_frame, walk
from ortoo.enode.log.segment import Segment, segment_at
from ortoo.enode.recovery.owners import is_foreign
from ortoo.enode.state.fold import State

MESSAGES_PER_HOLE_BYTE = 4096 / 192
"""A frame has at least 192 bytes and at most 4,096 messages."""


@dataclass(eq=False)
class StateRefold:
    """Folds a log into the state at its end, and collects the damaged places on the way."""

    segments: Sequence[Segment]
    slices: InitVar[Iterable[SliceLocation]]
    end_position: int
    without_checkpoint: bool = False
    log_mark: int = 0
    """The fingerprint of the log; a segment of another log is a hole."""
    store_open: int = 0
    """The number of the last opening in the folded frames."""

    def __post_init__(self, slices: Iterable[SliceLocation]) -> None:
        """Fold the log.

        Errors: DataLoss when the log's begin is missing and no whole checkpoint is left, unless `without_checkpoint`.
        """
        foreign: set[int] = set()
        while (base := self._fold_all(slices, foreign)) is not None:
            foreign.add(base)  # its messages may have been folded before the frame with the other fingerprint

    def _fold_all(self, slices: Iterable[SliceLocation], foreign: Collection[int]) -> int | None:
        """Fold all segments except those that begin at the positions `foreign`.

        Returns the base of a further segment that is of another log; None if there is none.
        """
        self.state, self.store_open = State(), 0
        self.holes: list[Hole] = []
        """The damaged places in the folded part."""
        self.checkpoint_bytes = 0
        """Bytes in the log of the checkpoint from which the state was loaded; 0 without one."""
        self._lost_bytes = 0
        self._queues_behind_hole: set[tuple[int, int]] = set()
        self._producers_behind_hole: set[tuple[int, int, int]] = set()
        start = self._load_checkpoint(slices)
        if self.segments and start < self.segments[0].base:
            self._lost_bytes += self.segments[0].base - start
        for segment, following in zip_longest(self.segments, self.segments[1:]):
            end = segment.end if segment.end is not None or following is None else following.base
            end = self.end_position if end is None else min(end, self.end_position)
            if end <= start:
                continue
            begin = max(segment.base, start)
            if segment.base in foreign:
                end = min(end, following.base) if following is not None else end
                self._record_hole(Hole(begin, end - begin, "the segment is of another store"))
            elif not self._fold(segment, begin, end):
                return segment.base
        return None

    def offsets_to_skip(self, *, is_cut: bool) -> list[OffsetsSkipped]:
        """Offsets to leave out, because a lost frame may have held them.

        A queue with a whole frame behind the last hole skips no offsets, because the frame's first offset is known.
        When the log `is_cut` at its end, the result has a range for each queue, possibly empty. A later fold meets the
        missing bytes in the middle of the log, and skips only the recorded ranges.
        """
        if not self._lost_bytes and not is_cut:
            return []
        margin = int(self._lost_bytes * MESSAGES_PER_HOLE_BYTE) + 1 if self._lost_bytes else 0
        ends = {key: end.offset for key, end in self.state.ends.all()}
        keys = set(ends)
        keys.update((copy.topic_id, queue) for copy in self.state.topics.all() for queue in range(copy.queue_count))
        skips = []
        for key in sorted(keys if is_cut else keys - self._queues_behind_hole):
            end = ends.get(key, self.state.ends.floor)
            left_out = 0 if key in self._queues_behind_hole else margin
            skips.append(OffsetsSkipped(*key, end, end + left_out))
        if is_cut or (0, 0) not in self._queues_behind_hole:
            left_out = 0 if (0, 0) in self._queues_behind_hole else margin
            skips.append(OffsetsSkipped(0, 0, 0, max(self.state.ends.floor, left_out)))
        return skips

    def forget_producers(self, *, is_cut: bool) -> None:
        """Forget the windows of producers whose last batches may be lost.

        The next sequence of such a producer would be a permanent gap here. A forgotten producer starts again at once.
        """
        if is_cut:
            self.state.windows.keep_only(())
        elif self._lost_bytes:
            self.state.windows.keep_only(self._producers_behind_hole)

    def _load_checkpoint(self, slices: Iterable[SliceLocation]) -> int:
        """Load the newest checkpoint whose frames are whole; returns the position to fold from."""
        for parts in complete_checkpoints(slices):
            state, size_bytes = State(), 0
            for part in parts:
                try:
                    changes = read_slice(self.segments, part, self.log_mark).changes
                    state.apply_all(decode_changes(changes))
                    size_bytes += frame_bytes(SLICE_HEAD_BYTES + len(changes))
                except BadFrame as error:
                    self.holes.append(Hole(part.position, error.length_bytes, str(error)))
                    break
            else:
                self.state, self.checkpoint_bytes = state, size_bytes
                return parts[-1].fold_from
        begin = self.segments[0].base if self.segments else 0
        if begin and not self.without_checkpoint:
            raise DataLoss(
                f"{self.segments[0].path} is the first segment and begins at position {begin}, but there is no whole "
                "checkpoint of the state. Restore the missing segments, or run "
                f"`ortoo-enode repair {self.segments[0].folder} --without-checkpoint`"
            )
        return begin

    def _read_body(self, segment: Segment, header: FrameHeader) -> bytes | None:
        """Prefix and payload of a frame. If they are damaged, a hole is recorded and None is returned."""
        try:
            return read_body(segment.read, header)
        except BadFrame as error:
            self.holes.append(Hole(header.position, error.length_bytes, str(error)))
            return None

    def _fold(self, segment: Segment, start: int, end: int) -> bool:
        """Fold a part of a segment. Returns False when one of its frames is of another log."""
        is_named = False
        for one in walk(segment.read, start, end):
            if isinstance(one, Hole):
                self._record_hole(one)
                continue
            if not one.is_of(self.log_mark):
                return False
            is_named = is_named or one.kind != FrameKind.MESSAGES
            self.store_open = max(self.store_open, one.store_open)
            if one.kind == FrameKind.MESSAGES:
                self._fold_messages(segment, one)
            elif one.kind == FrameKind.STATE:
                self._fold_changes(self._read_body(segment, one), one.stored_at_ms)
            if one.flags & FrameFlag.SEGMENT_END:
                if one.end_position < end:
                    self._record_hole(Hole(one.end_position, end - one.end_position, "segments are missing"))
                break
        return is_named or not is_foreign(segment, end, self.log_mark)

    def _record_hole(self, hole: Hole) -> None:
        """Record a hole in which frames of any queue may be lost."""
        self.holes.append(hole)
        self._lost_bytes += hole.length
        self._queues_behind_hole.clear()
        self._producers_behind_hole.clear()

    def _fold_messages(self, segment: Segment, header: FrameHeader) -> None:
        if header.prefix_length:
            body = self._read_body(segment, header)
            if body is not None:
                self.state.apply_all(decode_changes(body[: header.prefix_length]), header.stored_at_ms)
        self.state.apply_messages(header)
        if self._lost_bytes:
            self._queues_behind_hole.add((header.topic_id, header.queue_id))
            self._producers_behind_hole.add((header.topic_id, header.queue_id, header.producer_id))

    def _fold_changes(self, body: bytes | None, stored_at_ms: int) -> None:
        for change in decode_changes(body) if body is not None else ():
            self.state.apply(change, stored_at_ms)
            if isinstance(change, OffsetsSkipped):
                self._queues_behind_hole.add((change.topic_id, change.queue_id))


def read_slice(segments: Sequence[Segment], at: SliceLocation, log_mark: int) -> CheckpointSlice:
    """A slice of a checkpoint from one of the segments.

    Errors: Unsupported. BadFrame, also for a frame of a log with another fingerprint.
    """
    segment = segment_at(segments, at.position)
    assert segment is not None
    header, body = read_frame(segment.read, at.position)
    if not header.is_of(log_mark):
        raise BadFrame("the slice is of another store", header.frame_bytes)
    return decode_slice(body)

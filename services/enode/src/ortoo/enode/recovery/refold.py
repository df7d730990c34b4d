"""Folding the state again: from the newest whole checkpoint, along the log to its end."""

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass

from ortoo.common.errors import DataLoss
from ortoo.enode.changes.all import OffsetsSkipped, decode_changes
from ortoo.enode.log.checkpoint import SLICE_HEAD_BYTES, Slice, complete_checkpoints, decode_slice
from ortoo.enode.log.frame import BadFrame, Flag, FrameHeader, Kind, frame_bytes
from ortoo.enode.log.queue_index import SliceAt
from ortoo.enode.log.scan import Hole, read_body, read_frame, walk
from ortoo.enode.log.segment import Segment, holding
from ortoo.enode.state.fold import State

MESSAGES_PER_HOLE_BYTE = 4096 / 192
"""A frame has at least 192 bytes and at most 4,096 messages."""


@dataclass(eq=False)
class Refold:
    """The state at the end of a log, and what was found bad on the way."""

    segments: Sequence[Segment]
    slices: InitVar[Iterable[SliceAt]]
    end_position: int
    without_checkpoint: bool = False
    store_open: int = 0
    """The number of the last opening that was met."""

    def __post_init__(self, slices: Iterable[SliceAt]) -> None:
        """Fold now.

        Errors: DataLoss when the log's beginning is gone and no whole checkpoint is left, unless `without_checkpoint`.
        """
        self.state = State()
        self.holes: list[Hole] = []
        """Every damaged place that was met."""
        self.checkpoint_bytes = 0
        """How much of the log the checkpoint takes that the state was taken from; 0 without one."""
        self._lost_bytes = 0
        self._seen_behind_hole: set[tuple[int, int]] = set()
        self._producers_behind_hole: set[tuple[int, int, int]] = set()
        start = self._load_checkpoint(slices)
        if self.segments and start < self.segments[0].base:
            self._lost_bytes += self.segments[0].base - start
        for segment in self.segments:
            end = self.end_position if segment.end is None else min(segment.end, self.end_position)
            if end > start:
                self._fold(segment, max(segment.base, start), end)

    def skips(self, *, is_cut: bool) -> list[OffsetsSkipped]:
        """Offsets to leave out, because a lost frame may have held them and nothing says it did not.

        A queue of which a whole frame lies behind the last hole needs none: that frame's first offset is the proof.
        When the log `is_cut` at its end, every queue goes on with the next offset it knows, and says so in the log: a
        later fold meets the missing bytes in the middle, and must not leave out offsets then.
        """
        if not self._lost_bytes and not is_cut:
            return []
        margin = int(self._lost_bytes * MESSAGES_PER_HOLE_BYTE) + 1 if self._lost_bytes else 0
        ends = {key: end.offset for key, end in self.state.ends.all()}
        keys = set(ends)
        keys.update((copy.topic_id, queue) for copy in self.state.topics.all() for queue in range(copy.queue_count))
        skips = []
        for key in sorted(keys if is_cut else keys - self._seen_behind_hole):
            end = ends.get(key, self.state.ends.floor)
            left_out = 0 if key in self._seen_behind_hole else margin
            skips.append(OffsetsSkipped(*key, end, end + left_out))
        if is_cut or (0, 0) not in self._seen_behind_hole:
            left_out = 0 if (0, 0) in self._seen_behind_hole else margin
            skips.append(OffsetsSkipped(0, 0, 0, max(self.state.ends.floor, left_out)))
        return skips

    def forget_producers(self, *, is_cut: bool) -> None:
        """Forget the windows of producers whose last batches may be lost.

        Such a producer goes on with a sequence that would be a gap here for ever; unknown, it begins anew at once.
        """
        if is_cut:
            self.state.windows.keep_only(())
        elif self._lost_bytes:
            self.state.windows.keep_only(self._producers_behind_hole)

    def _load_checkpoint(self, slices: Iterable[SliceAt]) -> int:
        """Start from the newest checkpoint whose frames are whole; return the position to fold from."""
        for parts in complete_checkpoints(slices):
            state, size_bytes = State(), 0
            for part in parts:
                try:
                    changes = read_slice(self.segments, part).changes
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
                f"{self.segments[0].path} is the first segment, it begins at position {begin}, and no whole "
                "checkpoint of the state is left behind it: put the missing segments back, or run "
                f"`ortoo-enode repair {self.segments[0].folder} --without-checkpoint`"
            )
        return begin

    def _body(self, segment: Segment, header: FrameHeader) -> bytes | None:
        """Prefix and payload of a frame; None, and noted, when they are damaged."""
        try:
            return read_body(segment.read, header)
        except BadFrame as error:
            self.holes.append(Hole(header.position, error.length_bytes, str(error)))
            return None

    def _fold(self, segment: Segment, start: int, end: int) -> None:
        for one in walk(segment.read, start, end):
            if isinstance(one, Hole):
                self._lose(one)
                continue
            self.store_open = max(self.store_open, one.store_open)
            if one.kind == Kind.MESSAGES:
                self._fold_messages(segment, one)
            elif one.kind == Kind.STATE:
                self._fold_changes(self._body(segment, one), one.stored_at_ms)
            if one.flags & Flag.SEGMENT_END:
                if one.end_position < end:
                    self._lose(Hole(one.end_position, end - one.end_position, "segments are missing"))
                break

    def _lose(self, hole: Hole) -> None:
        """Nobody knows what lay here."""
        self.holes.append(hole)
        self._lost_bytes += hole.length
        self._seen_behind_hole.clear()
        self._producers_behind_hole.clear()

    def _fold_messages(self, segment: Segment, header: FrameHeader) -> None:
        if header.prefix_length:
            body = self._body(segment, header)
            if body is not None:
                self.state.apply_all(decode_changes(body[: header.prefix_length]), header.stored_at_ms)
        self.state.apply_messages(header)
        if self._lost_bytes:
            self._seen_behind_hole.add((header.topic_id, header.queue_id))
            self._producers_behind_hole.add((header.topic_id, header.queue_id, header.producer_id))

    def _fold_changes(self, body: bytes | None, stored_at_ms: int) -> None:
        for change in decode_changes(body) if body is not None else ():
            self.state.apply(change, stored_at_ms)
            if isinstance(change, OffsetsSkipped):
                self._seen_behind_hole.add((change.topic_id, change.queue_id))


def read_slice(segments: Sequence[Segment], at: SliceAt) -> Slice:
    """A slice of a checkpoint that was found in one of the segments. Errors: BadFrame, Unsupported."""
    segment = holding(segments, at.position)
    assert segment is not None
    return decode_slice(read_frame(segment.read, at.position)[1])

"""The survey of a segment: builds its queue index from its frames alone."""

from dataclasses import dataclass, field

from ortoo.enode.log.checkpoint import decode_slice
from ortoo.enode.log.frame import BadFrame, FrameFlag, FrameKind
from ortoo.enode.log.queue_index import IndexParts, QueueKey, SliceLocation
from ortoo.enode.log.rows import IndexRows
from ortoo.enode.log.scan import Hole, Read, read_body, walk


@dataclass(slots=True)
class SegmentSurvey:
    """The result of a walk along a segment's headers."""

    rows: dict[QueueKey, IndexRows] = field(default_factory=dict)
    slices: list[SliceLocation] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    durable_below: int = 0
    """The highest `durable_below` of any frame."""
    store_open: int = 0
    leader_epoch: int = 0
    """The highest epoch of any frame."""
    foreign_at: int = -1
    """The position of the first frame with the fingerprint of another log; -1 = none."""
    stored_at_ms: int = 0
    end_position: int = 0
    """The end of the last frame."""
    is_ended: bool = False
    """Whether the last frame has the flag that ends the segment."""

    @property
    def parts(self) -> IndexParts:
        """The parts of the segment's index."""
        return IndexParts(self.rows, self.slices, [(hole.position, hole.length) for hole in self.holes])

    def truncate(self, position: int) -> None:
        """Forget everything from `position` on."""
        for key, rows in list(self.rows.items()):
            rows.truncate(position)
            if not rows:
                del self.rows[key]
        self.slices = [one for one in self.slices if one.position < position]
        self.holes = [
            Hole(one.position, min(one.end_position, position) - one.position, one.reason)
            for one in self.holes
            if one.position < position
        ]
        if position < self.end_position:
            self.end_position, self.is_ended = position, False


def survey(read: Read, base: int, end: int, log_mark: int = 0) -> SegmentSurvey:
    """Walk the headers from `base` to `end`, or to the mark that ends the segment. Errors: Unsupported.

    `log_mark` is the fingerprint of the log; 0 = frames of any log are accepted.
    """
    found = SegmentSurvey(end_position=base)
    rows_by_queue = found.rows
    for one in walk(read, base, end):
        if isinstance(one, Hole):
            found.holes.append(one)
            continue
        if one.durable_below > found.durable_below:
            found.durable_below = one.durable_below
        found.store_open, found.leader_epoch = one.store_open, one.leader_epoch
        if found.foreign_at < 0 and not one.is_of(log_mark):
            found.foreign_at = one.position
        if one.stored_at_ms > found.stored_at_ms:
            found.stored_at_ms = one.stored_at_ms
        found.end_position = one.end_position
        if one.kind == FrameKind.MESSAGES:
            key = (one.topic_id, one.queue_id)
            rows = rows_by_queue.get(key)
            if rows is None:
                rows = rows_by_queue[key] = IndexRows()
            rows.append(
                one.first_offset, one.item_count, one.position, one.prefix_length + one.length, one.stored_at_ms
            )  # fmt: skip
        elif one.kind == FrameKind.CHECKPOINT:
            # A body may be missing although its header was written, so its CRC is checked before use.
            try:
                part = decode_slice(read_body(read, one)[one.prefix_length :])
            except BadFrame as error:
                found.holes.append(Hole(one.position, error.length_bytes, str(error)))
            else:
                found.slices.append(part.at(one.position))
        if one.flags & FrameFlag.SEGMENT_END:
            found.is_ended = True
            break
    return found


def survey_sealed(read: Read, base: int, file_end: int, next_base: int) -> SegmentSurvey:
    """The survey of a segment that must end at the begin of the next segment; missing bytes at its end are a hole.

    `file_end` is the position of the file's end, which is earlier if the file was cut short.
    """
    found = survey(read, base, min(file_end, next_base))
    if found.end_position < next_base:
        rest = Hole(found.end_position, next_base - found.end_position, "the segment's end is missing")
        if found.holes and found.holes[-1].position == rest.position:
            found.holes.pop()
        found.holes.append(rest)
    found.end_position = next_base
    return found


def find_log_end(found: SegmentSurvey, read: Read, base: int, limit: int) -> int:
    """The end of the log of a crashed store, from the survey of its last segment.

    All bytes below the highest `durable_below` of any whole frame were durable. Bad bytes there are damage, and the log
    is not truncated. Behind that position, no frame after the first bad frame was acknowledged. So the log is truncated
    at the first bad frame.
    """
    durable = max(base, min(found.durable_below, limit))
    start = durable
    for hole in found.holes:
        if hole.position < durable < hole.end_position:
            return durable
    for one in walk(read, start, limit, bodies_from=start):
        if isinstance(one, Hole):
            return one.position
        start = one.end_position
        if one.flags & FrameFlag.SEGMENT_END:
            return start
    return start

"""The state of a log, folded from its first frame by a second, simpler implementation than the enode's.

It takes the frames from all writes to the disk and not from the remaining files. So it needs neither checkpoints nor
index files, and retention does not affect it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ortoo.enode.changes.groups import ModeSet, RetryCopiesStored, RetryMarksDropped
from ortoo.enode.changes.kinds import (
    DirectoryTopicPut,
    IdsRemembered,
    OffsetRows,
    OffsetsCommitted,
    ProducerWindow,
    QueueEndSnapshot,
    StateChange,
    TopicDeleted,
    TopicPut,
    decode_changes,
    encode_changes,
)
from ortoo.enode.changes.pops import PopFinished, PopIntervals, PopLeased, PopReturned
from ortoo.enode.log.frame import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    MAGIC_BYTES,
    BadFrame,
    FrameHeader,
    FrameKind,
    decode_header,
)
from ortoo.enode.state.fold import State
from ortoo.testing.disks.disk_image import Operation, WriteFile

WINDOW_BATCHES = 5
FLOOR = -1
FINISHED = "finished"
_POSITION_AT = 8

Frame = tuple[FrameHeader, bytes]


@dataclass(slots=True)
class FoldedState:
    """The state as plain dictionaries."""

    topics: dict[int, tuple[str, int, int, str]] = field(default_factory=dict)
    offsets: dict[tuple[int, str, int], tuple[int, int]] = field(default_factory=dict)
    ends: dict[tuple[int, int], int] = field(default_factory=dict)
    windows: dict[tuple[int, int, int], list[tuple[int, int, int, int]]] = field(default_factory=dict)
    pops: dict[tuple[int, str, int], dict[int, object]] = field(default_factory=dict)
    """(topic id, group, queue id) to the state of each offset above the floor; at FLOOR the floor itself."""
    sent_back: dict[tuple[int, str, int], list[tuple[int, int]]] = field(default_factory=dict)
    modes: dict[tuple[int, str], int] = field(default_factory=dict)
    ids: dict[tuple[int, bytes], tuple[int, int, bool, int, int]] = field(default_factory=dict)
    """(topic id, id) to (queue id, offset, delayed, stored at ms, until ms)."""

    def of_known_topics(self) -> "FoldedState":
        """A copy without state of deleted topics, which no request can reach."""
        return FoldedState(
            self.topics,
            {key: value for key, value in self.offsets.items() if key[0] in self.topics},
            {key: value for key, value in self.ends.items() if key[0] in self.topics and value},
            {key: value for key, value in self.windows.items() if key[0] in self.topics},
            {key: value for key, value in self.pops.items() if key[0] in self.topics},
            {key: value for key, value in self.sent_back.items() if key[0] in self.topics and value},
            {key: value for key, value in self.modes.items() if key[0] in self.topics and value},
            {key: value for key, value in self.ids.items() if key[0] in self.topics},
        )


def frames_written(operations: Iterable[Operation]) -> dict[int, Frame]:
    """Every frame in these writes, by its position in the log; a later write at a position replaces an earlier one."""
    frames: dict[int, Frame] = {}
    for operation in operations:
        if not isinstance(operation, WriteFile) or operation.data[:4] != MAGIC_BYTES:
            continue
        data, at = operation.data, 0
        while at + HEADER_BYTES <= len(data):
            position = int.from_bytes(data[at + _POSITION_AT : at + _POSITION_AT + 8], "little")
            try:
                header = decode_header(data[at : at + HEADER_BYTES], position)
            except BadFrame:
                break
            body_at = at + HEADER_BYTES
            frames[position] = (header, data[body_at : body_at + header.prefix_length + header.length])
            at += -(-(HEADER_BYTES + header.prefix_length + header.length) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return frames


def fold_from_scratch(frames: dict[int, Frame], end_position: int) -> FoldedState:
    """Fold every frame below `end_position`, in order."""
    state = FoldedState()
    for position in sorted(frames):
        if position >= end_position:
            break
        header, body = frames[position]
        if header.kind == FrameKind.STATE:
            for change in decode_changes(body):
                _apply(state, change)
        elif header.kind == FrameKind.MESSAGES:
            for change in decode_changes(body[: header.prefix_length]) if header.prefix_length else ():
                _apply(state, change)
            key = (header.topic_id, header.queue_id)
            state.ends[key] = header.first_offset + header.item_count
            if header.producer_id:
                window = state.windows.setdefault((*key, header.producer_id), [])
                window.append((header.first_sequence, header.item_count, header.first_offset, header.payload_crc))
                del window[:-WINDOW_BATCHES]
    return state


def plain_state_of(state: State) -> FoldedState:
    """The enode's own state in the same plain form."""
    plain = FoldedState()
    for change in decode_changes(encode_changes(tuple(state.checkpoint()))):
        _apply(plain, change)
    return plain


def _apply(state: FoldedState, change: StateChange) -> None:
    if isinstance(change, TopicPut | DirectoryTopicPut):
        known, directory_id = state.topics.get(change.topic_id), getattr(change, "directory_id", "")
        if known is None or known[3] != directory_id or known[2] <= change.version:
            state.topics[change.topic_id] = (change.name, change.queue_count, change.version, directory_id)
    elif isinstance(change, TopicDeleted):
        state.topics.pop(change.topic_id, None)
        gone = change.topic_id
        state.offsets = {key: value for key, value in state.offsets.items() if key[0] != gone}
        state.ends = {key: value for key, value in state.ends.items() if key[0] != gone}
        state.windows = {key: value for key, value in state.windows.items() if key[0] != gone}
        state.pops = {key: value for key, value in state.pops.items() if key[0] != gone}
        state.sent_back = {key: value for key, value in state.sent_back.items() if key[0] != gone}
        state.modes = {key: value for key, value in state.modes.items() if key[0] != gone}
        state.ids = {key: value for key, value in state.ids.items() if key[0] != gone}
    elif isinstance(change, OffsetsCommitted):
        for queue_id, offset in change.offsets:
            place = (change.topic_id, change.group, queue_id)
            state.sent_back[place] = [mark for mark in state.sent_back.get(place, []) if mark[0] >= offset]
            state.offsets[place] = (offset, change.generation or state.offsets.get(place, (0, 0))[1])
            if place in state.pops:
                state.pops[place] = {FLOOR: offset}
    elif isinstance(change, OffsetRows):
        for queue_id, offset, generation in change.rows:
            state.offsets[change.topic_id, change.group, queue_id] = (offset, generation)
    elif isinstance(change, ProducerWindow):
        state.windows[change.topic_id, change.queue_id, change.producer_id] = [
            (one.first_sequence, one.count, one.first_offset, one.crc) for one in change.batches
        ]
    elif isinstance(change, QueueEndSnapshot):
        state.ends[change.topic_id, change.queue_id] = change.end_offset
    elif isinstance(change, PopLeased | PopReturned | PopFinished | PopIntervals):
        _apply_pop(state, change)
    else:
        _apply_life(state, change)


def _apply_life(state: FoldedState, change: StateChange) -> None:
    if isinstance(change, RetryCopiesStored):
        place = (change.topic_id, change.group, change.queue_id)
        state.sent_back[place] = sorted({*state.sent_back.get(place, []), *change.rows})
    elif isinstance(change, RetryMarksDropped):
        for queue_id in change.queue_ids:
            state.sent_back.pop((change.topic_id, change.group, queue_id), None)
    elif isinstance(change, ModeSet):
        state.modes[change.topic_id, change.group] = int(change.mode)
    elif isinstance(change, IdsRemembered):
        rest = (change.delayed, change.stored_at_ms, change.until_ms)
        for row, one in enumerate(change.ids):
            state.ids[change.topic_id, one] = (change.queue_id, change.first_offset + row, *rest)
        state.ids = {
            key: value
            for key, value in state.ids.items()
            if key[0] != change.topic_id or value[-1] > change.stored_at_ms
        }


def _apply_pop(state: FoldedState, change: PopLeased | PopReturned | PopFinished | PopIntervals) -> None:
    """Apply it with one entry an offset: finished offsets stay finished, and the floor moves over them."""
    place = (change.topic_id, change.group, change.queue_id)
    begin = state.offsets.get(place, (0, 0))[0]
    if isinstance(change, PopIntervals) and change.is_first:
        state.pops[place] = {FLOOR: change.floor}
    queue = state.pops.setdefault(place, {FLOOR: begin})
    news: list[tuple[int, int, object]] = []
    if isinstance(change, PopFinished):
        news = [(first, count, FINISHED) for first, count in change.ranges]
    elif isinstance(change, PopIntervals):
        news = [(first, count, tuple(hold) if hold[0] else FINISHED) for first, count, *hold in change.rows]
    else:
        phase = 1 if isinstance(change, PopLeased) else 2
        hold = (change.number, change.until_ms, change.duration_ms)
        news = [(first, count, (phase, attempt, *hold)) for first, count, attempt in change.rows]
    floor = queue[FLOOR]
    assert isinstance(floor, int)
    for first, count, what in news:
        for offset in range(max(first, floor), first + count):
            if queue.get(offset) != FINISHED:
                queue[offset] = what
    while queue.get(floor) == FINISHED:
        del queue[floor]
        floor += 1
    queue[FLOOR] = floor
    state.offsets[place] = (floor, state.offsets.get(place, (0, 0))[1])

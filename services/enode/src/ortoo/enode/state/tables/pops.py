"""The durable delivery state of popping groups: finished and held messages."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import ClassVar

from ortoo.enode.changes.kinds import OffsetsCommitted, QueueTrimmed
from ortoo.enode.changes.pops import (
    COUNT_MAX,
    LeasesInvalidated,
    PopFinished,
    PopIntervals,
    PopLeased,
    PopNote,
    PopReturned,
)
from ortoo.enode.state.interval_map import DeliveryState, IntervalMap, Phase
from ortoo.enode.state.table import PlaceTable
from ortoo.enode.state.tables.ends import TrimTable
from ortoo.enode.state.tables.offsets import GroupOffsetTable

ROWS_PER_CHANGE = 256
_FINISHED = (0, 0, 0, 0, 0)

PopKey = tuple[int, str, int]
"""(topic id, group, queue id)."""


class FinishReason(IntEnum):
    """Why a message is finished for a group."""

    ACKNOWLEDGED = 1
    PARKED = 2
    """Copied to the dead-letter topic."""
    FILTERED = 3
    """Excluded by the group's filter."""
    LOST = 4
    """Deleted by retention, or damaged."""
    REPLAYED = 5
    """A dead letter that was replayed."""
    EXPIRED = 6
    """Expired before the group got it."""


class PopQueue:
    """One queue of a popping group."""

    __slots__ = ("intervals", "notes")

    def __init__(self, floor: int) -> None:
        """Begin at `floor`, the group's first offset."""
        self.intervals = IntervalMap(floor)
        self.notes: dict[int, tuple[str, str]] = {}
        """Offset to the (consumer, error) of its last nack."""

    def drop_notes(self, first: int, end: int) -> None:
        """Drop the notes of finished messages."""
        for offset in noted_offsets(self.notes, first, end) if self.notes else ():
            del self.notes[offset]


def noted_offsets(notes: Mapping[int, object], first: int, end: int) -> list[int]:
    """The offsets from `first` to below `end` that have a note, in any order.

    The cost is that of the smaller number, of the offsets or of the notes. One message costs the same beside any number
    of failed ones.
    """
    if end - first < len(notes):
        return [offset for offset in range(first, end) if offset in notes]
    return [offset for offset in notes if first <= offset < end]


class PopTable(PlaceTable[PopQueue]):
    """The table of popping groups: topic id to (group, queue id) to delivery state."""

    def __init__(self, offsets: GroupOffsetTable, trims: TrimTable) -> None:
        """Begin empty. The floor of each queue is also stored in `offsets`, as the group's committed offset.

        No floor is below the begin in `trims`. A group may have chosen a lower one before it learned of a trim.
        """
        super().__init__()
        self._offsets = offsets
        self._trims = trims
        self.first_lease_number = 0
        """A lease with a smaller number holds only the messages for which this table contains it."""

    def get(self, key: PopKey) -> PopQueue | None:
        """A queue of a group; None if the group never popped from it."""
        return self._topics.get(key[0], {}).get(key[1:])

    def all(self) -> Iterator[tuple[PopKey, PopQueue]]:
        """Every queue of every group; the table must not change meanwhile."""
        return (((topic_id, *place), queue) for topic_id, place, queue in self.entries())

    @property
    def rows(self) -> int:
        """The approximate number of rows, counted by interval."""
        return sum(len(queue.intervals) + 1 for _, queue in self.all()) + bool(self.first_lease_number)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        if self.first_lease_number:
            yield LeasesInvalidated(self.first_lease_number).encoded()
        for topic_id, place, queue in self.iterate_live():
            yield from _encode_queue((topic_id, *place), queue)

    def _hold(self, change: PopLeased | PopReturned) -> None:
        queue = self._queue(change)
        phase = Phase.LEASED if isinstance(change, PopLeased) else Phase.RETURNED
        for first, count, attempt in change.rows:
            hold = DeliveryState(phase, attempt, change.number, change.until_ms, change.duration_ms)
            queue.intervals.set_state(first, first + count, hold)

    def _finish(self, change: PopFinished) -> None:
        queue = self._queue(change)
        for first, count in change.ranges:
            queue.intervals.finish(first, first + count)
            queue.drop_notes(first, first + count)
        self._offsets.set_floor(change.topic_id, change.group, change.queue_id, queue.intervals.floor)

    def _note(self, change: PopNote) -> None:
        queue = self.get((change.topic_id, change.group, change.queue_id))
        if queue is not None and not queue.intervals.is_finished(change.offset):
            queue.notes[change.offset] = (change.consumer, change.error)

    def _load(self, change: PopIntervals) -> None:
        queues, place = self._topics.setdefault(change.topic_id, {}), (change.group, change.queue_id)
        if change.is_first or place not in queues:
            queues[place] = PopQueue(change.floor)
        intervals = queues[place].intervals
        # Between two changes of a checkpoint the floor may have risen over finished ranges, which are then in no row.
        intervals.finish(intervals.floor, max(change.floor, self._trims.of(change.topic_id, change.queue_id)))
        for first, count, phase, attempt, number, until_ms, duration_ms in change.rows:
            if phase:
                intervals.set_state(
                    first, first + count, DeliveryState(Phase(phase), attempt, number, until_ms, duration_ms)
                )
            else:
                intervals.finish(first, first + count)
        self._offsets.set_floor(change.topic_id, *place, intervals.floor)

    def _reset(self, change: OffsetsCommitted) -> None:
        """Fold a reset of the group's offset: the delivery state of the queue restarts at the new offset."""
        queues = self._topics.get(change.topic_id, {})
        for queue_id, offset in change.offsets if queues else ():
            if (change.group, queue_id) in queues:
                queues[change.group, queue_id] = PopQueue(max(offset, self._trims.of(change.topic_id, queue_id)))

    def _trim(self, change: QueueTrimmed) -> None:
        """Finish the trimmed messages for each group."""
        for (group, queue_id), queue in self._topics.get(change.topic_id, {}).items():
            floor = queue.intervals.floor
            if queue_id == change.queue_id and floor < change.begin_offset:
                queue.intervals.finish(floor, change.begin_offset)
                queue.drop_notes(floor, change.begin_offset)
                self._offsets.set_floor(change.topic_id, group, queue_id, queue.intervals.floor)

    def _invalidate(self, change: LeasesInvalidated) -> None:
        self.first_lease_number = max(self.first_lease_number, change.first_number)

    def _queue(self, change: PopLeased | PopReturned | PopFinished) -> PopQueue:
        queues, place = self._topics.setdefault(change.topic_id, {}), (change.group, change.queue_id)
        queue = queues.get(place)
        if queue is None:
            offset = self._offsets.of(change.topic_id, change.group, (change.queue_id,)).get(change.queue_id, 0)
            floor = max(offset, self._trims.of(change.topic_id, change.queue_id))
            queue = queues[place] = PopQueue(floor)
            self._offsets.set_floor(change.topic_id, *place, floor)
        return queue

    FOLDS: ClassVar = {
        PopLeased: _hold,
        PopReturned: _hold,
        PopFinished: _finish,
        PopNote: _note,
        PopIntervals: _load,
        OffsetsCommitted: _reset,
        LeasesInvalidated: _invalidate,
        QueueTrimmed: _trim,
    }


def _encode_queue(key: PopKey, queue: PopQueue) -> Iterator[bytes]:
    at, is_first = queue.intervals.floor, True
    while True:
        pieces = queue.intervals.rows(at, ROWS_PER_CHANGE)
        rows = tuple(
            (first, min(COUNT_MAX, one.end - first), *(one.state or _FINISHED))
            for one in pieces
            for first in range(one.first, one.end, COUNT_MAX)
        )
        yield PopIntervals(*key, queue.intervals.floor, is_first, rows).encoded()
        if len(pieces) < ROWS_PER_CHANGE:
            break
        at, is_first = pieces[-1].end, False
    for offset, (consumer, error) in list(queue.notes.items()):
        yield PopNote(*key, offset, consumer, error).encoded()

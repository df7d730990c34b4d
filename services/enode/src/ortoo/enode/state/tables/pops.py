"""What every pop group has finished and holds: the folded, durable side."""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

from ortoo.enode.changes.all import OffsetsCommitted, TopicGone
from ortoo.enode.changes.pops import PopFinished, PopLeased, PopNote, PopReturned, PopSpans
from ortoo.enode.state.tables.offsets import Offsets
from ortoo.enode.state.tables.spans import Hold, Phase, Spans

ROWS_PER_CHANGE = 256

PopKey = tuple[int, str, int]
"""(topic id, group, queue id)."""


class FinishReason(IntEnum):
    """Why a group is done with a message."""

    ACKNOWLEDGED = 1
    PARKED = 2
    """It is in the dead-letter topic now."""
    FILTERED = 3
    """The group does not want it."""
    LOST = 4
    """Retention took it, or its bytes are damaged."""
    REPLAYED = 5
    """A dead letter that was sent again."""
    EXPIRED = 6
    """Its time was over before the group got it."""


class PopQueue:
    """One queue of a group that pops."""

    __slots__ = ("notes", "spans")

    def __init__(self, floor: int) -> None:
        """The group begins at `floor`."""
        self.spans = Spans(floor)
        self.notes: dict[int, tuple[str, str]] = {}
        """Offset to (consumer, error) of the last time it was given back."""

    def forget_notes(self, first: int, end: int) -> None:
        """Drop what was said about messages that are finished."""
        notes = self.notes
        if notes:
            for offset in [one for one in notes if first <= one < end]:
                del notes[offset]


class Pops:
    """(topic id, group, queue id) to what was popped there."""

    def __init__(self) -> None:
        """Nobody pops."""
        self.queues: dict[PopKey, PopQueue] = {}

    def get(self, key: PopKey) -> PopQueue | None:
        """A queue of a group, if it ever popped there."""
        return self.queues.get(key)

    def has_group(self, topic_id: int, group: str) -> bool:
        """Whether a group has popped from a topic."""
        return any(key[0] == topic_id and key[1] == group for key in self.queues)

    def apply(self, change: object, offsets: Offsets) -> None:
        """Fold one change in. The floor of each queue is the group's committed offset: `offsets` follows it."""
        fold = _FOLDS.get(type(change))
        if fold is not None:
            fold(self, change, offsets)

    def _lease(self, change: PopLeased | PopReturned, offsets: Offsets) -> None:
        queue = self._queue((change.topic_id, change.group, change.queue_id), offsets)
        phase = Phase.LEASED if isinstance(change, PopLeased) else Phase.RETURNED
        for first, count, attempt in change.rows:
            hold = Hold(phase, attempt, change.number, change.until_ms, change.duration_ms)
            queue.spans.hold(first, first + count, hold)
        offsets.follow(change.topic_id, change.group, change.queue_id, queue.spans.floor)

    def _finish(self, change: PopFinished, offsets: Offsets) -> None:
        queue = self._queue((change.topic_id, change.group, change.queue_id), offsets)
        for first, count in change.ranges:
            queue.spans.finish(first, first + count)
            queue.forget_notes(first, first + count)
        offsets.follow(change.topic_id, change.group, change.queue_id, queue.spans.floor)

    def _note(self, change: PopNote, offsets: Offsets) -> None:
        queue = self.queues.get((change.topic_id, change.group, change.queue_id))
        if queue is not None and not queue.spans.is_finished(change.offset):
            queue.notes[change.offset] = (change.consumer, change.error)

    def _load(self, change: PopSpans, offsets: Offsets) -> None:
        key = (change.topic_id, change.group, change.queue_id)
        queue = self.queues.get(key)
        if queue is None or change.is_first:
            queue = self.queues[key] = PopQueue(change.floor)
        for first, count, phase, attempt, number, until_ms, duration_ms in change.rows:
            if phase:
                queue.spans.hold(first, first + count, Hold(Phase(phase), attempt, number, until_ms, duration_ms))
            else:
                queue.spans.finish(first, first + count)
        offsets.follow(*key, queue.spans.floor)

    def _reset(self, change: OffsetsCommitted, offsets: Offsets) -> None:
        """The group's offset was set from outside: it begins anew there."""
        for queue_id, offset in change.offsets:
            key = (change.topic_id, change.group, queue_id)
            if key in self.queues:
                self.queues[key] = PopQueue(offset)

    def _forget(self, change: TopicGone, offsets: Offsets) -> None:
        for key in [key for key in self.queues if key[0] == change.topic_id]:
            del self.queues[key]

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while changes go on, for they are then folded again."""
        for key in list(self.queues):
            queue = self.queues.get(key)
            if queue is None:
                continue
            topic_id, group, queue_id = key
            at, is_first = queue.spans.floor, True
            while True:
                pieces = queue.spans.rows(at, ROWS_PER_CHANGE)
                rows = tuple((one.first, one.end - one.first, *(one.hold or _FINISHED)) for one in pieces)
                yield PopSpans(topic_id, group, queue_id, queue.spans.floor, is_first, rows).encoded()
                if len(pieces) < ROWS_PER_CHANGE:
                    break
                at, is_first = pieces[-1].end, False
            for offset, (consumer, error) in list(queue.notes.items()):
                yield PopNote(topic_id, group, queue_id, offset, consumer, error).encoded()

    def _queue(self, key: PopKey, offsets: Offsets) -> PopQueue:
        queue = self.queues.get(key)
        if queue is None:
            topic_id, group, queue_id = key
            queue = self.queues[key] = PopQueue(offsets.of(topic_id, group, (queue_id,)).get(queue_id, 0))
        return queue


_FINISHED = (0, 0, 0, 0, 0)
_FOLDS: dict[type, Callable[[Pops, Any, Offsets], None]] = {
    PopLeased: Pops._lease,
    PopReturned: Pops._lease,
    PopFinished: Pops._finish,
    PopNote: Pops._note,
    PopSpans: Pops._load,
    OffsetsCommitted: Pops._reset,
    TopicGone: Pops._forget,
}

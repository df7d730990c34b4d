"""Marks of the messages that groups nacked by offset, so that a repeated request stores no second copy. Pure.

A mark lives until the group's offset passes the message, or an operator moves the offset; both events are in the log.
Folding a mark does not depend on the earlier state, so folding a part of the log again changes nothing.
"""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.enode.changes.groups import RetryCopiesStored, RetryMarksDropped
from ortoo.enode.changes.kinds import OffsetsCommitted, QueueTrimmed
from ortoo.enode.state.table import PlaceTable, split_rows

RetryPlace = tuple[int, str, int]
"""(topic id, group, queue id)."""
RetryMark = tuple[int, int]
"""(offset, 1 if the message was parked)."""


class RetryMarkTable(PlaceTable[set[RetryMark]]):
    """The table of the marks of nacked messages: topic id to (group, queue id) to marks."""

    def has(self, place: RetryPlace, mark: RetryMark) -> bool:
        """Whether this message was already nacked with this outcome."""
        return mark in self._of(place)

    def count(self, place: RetryPlace) -> int:
        """The number of marks of a group in a queue."""
        return len(self._of(place))

    @property
    def rows(self) -> int:
        """The approximate number of rows, counted by message."""
        return sum(len(marks) for _, _, marks in self.entries())

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, place, marks in self.iterate_live():
            for part in split_rows(sorted(marks)):
                yield RetryCopiesStored(topic_id, *place, part).encoded()

    def _of(self, place: RetryPlace) -> set[RetryMark]:
        return self._topics.get(place[0], {}).get(place[1:], set())

    def _mark(self, change: RetryCopiesStored) -> None:
        places = self._topics.setdefault(change.topic_id, {})
        places.setdefault((change.group, change.queue_id), set()).update(change.rows)

    def _pass(self, change: OffsetsCommitted) -> None:
        if change.topic_id in self._topics:
            for queue_id, offset in change.offsets:
                self._drop_below((change.topic_id, change.group, queue_id), offset)

    def _trim(self, change: QueueTrimmed) -> None:
        for group, queue_id in list(self._topics.get(change.topic_id, ())):
            if queue_id == change.queue_id:
                self._drop_below((change.topic_id, group, queue_id), change.begin_offset)

    def _drop_below(self, place: RetryPlace, offset: int) -> None:
        places = self._topics[place[0]]
        left = {mark for mark in places.pop(place[1:], ()) if mark[0] >= offset}
        if left:
            places[place[1:]] = left

    def _forget(self, change: RetryMarksDropped) -> None:
        places = self._topics.get(change.topic_id, {})
        for queue_id in change.queue_ids:
            places.pop((change.group, queue_id), None)

    FOLDS: ClassVar = {
        RetryCopiesStored: _mark,
        OffsetsCommitted: _pass,
        RetryMarksDropped: _forget,
        QueueTrimmed: _trim,
    }

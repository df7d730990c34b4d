"""The ends of queues, kept even after all their frames are deleted, their skipped offsets, and their trimmed begins."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ortoo.enode.changes.kinds import OffsetsSkipped, QueueEndSnapshot, QueueTrimmed
from ortoo.enode.state.table import KeyedTable

QueueKey = tuple[int, int]
"""(topic id, queue id)."""


@dataclass(slots=True)
class QueueEnd:
    """The end of one queue."""

    offset: int = 0
    stored_at_ms: int = 0
    """The time of the last message; 0 if there was none."""
    skipped: tuple[tuple[int, int], ...] = ()


class QueueEndTable(KeyedTable[int, QueueEnd]):
    """The table of the ends of queues: topic id to queue id to end. Ends only grow."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.floor = 0
        """The first offset of new queues; set by a skip with topic 0, which stands for all unknown queues."""

    def skipped(self, key: QueueKey) -> tuple[tuple[int, int], ...]:
        """The (begin, end) ranges of a queue, end exclusive, that will never hold a message."""
        end = self._topics.get(key[0], {}).get(key[1])
        return end.skipped if end is not None else ()

    def all(self) -> Iterator[tuple[QueueKey, QueueEnd]]:
        """(key, end) of each queue."""
        return (((topic_id, queue_id), end) for topic_id, queue_id, end in self.entries())

    def extend(self, key: QueueKey, offset: int, stored_at_ms: int | None = None) -> QueueEnd:
        """Raise the end of a queue to at least `offset`. Without `stored_at_ms`, the last message's time stays."""
        ends = self._topics.setdefault(key[0], {})
        end = ends.get(key[1])
        if end is None:
            end = ends[key[1]] = QueueEnd()
        if offset > end.offset:
            end.offset = offset
            if stored_at_ms is not None:
                end.stored_at_ms = stored_at_ms
        return end

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, queue_id, end in self.iterate_live():
            yield QueueEndSnapshot(topic_id, queue_id, end.offset, end.stored_at_ms).encoded()
            for begin, stop in end.skipped:
                yield OffsetsSkipped(topic_id, queue_id, begin, stop).encoded()
        if self.floor:
            yield OffsetsSkipped(0, 0, 0, self.floor).encoded()

    def _load(self, change: QueueEndSnapshot) -> None:
        self.extend((change.topic_id, change.queue_id), change.end_offset, change.stored_at_ms)

    def _skip(self, change: OffsetsSkipped) -> None:
        if not change.topic_id:
            self.floor = max(self.floor, change.end_offset)
            return
        end = self.extend((change.topic_id, change.queue_id), change.end_offset)
        skipped = (change.begin_offset, change.end_offset)
        if change.begin_offset < change.end_offset and skipped not in end.skipped:
            end.skipped += (skipped,)

    FOLDS: ClassVar = {QueueEndSnapshot: _load, OffsetsSkipped: _skip}


class TrimTable(KeyedTable[int, int]):
    """The table of trimmed queues: topic id to queue id to begin offset. Begin offsets only grow."""

    def of(self, topic_id: int, queue_id: int) -> int:
        """The begin offset that operators have set for a queue; 0 = none."""
        return self._topics.get(topic_id, {}).get(queue_id, 0)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, queue_id, begin_offset in self.iterate_live():
            yield QueueTrimmed(topic_id, queue_id, begin_offset).encoded()

    def _trim(self, change: QueueTrimmed) -> None:
        begins = self._topics.setdefault(change.topic_id, {})
        begins[change.queue_id] = max(begins.get(change.queue_id, 0), change.begin_offset)

    FOLDS: ClassVar = {QueueTrimmed: _trim}

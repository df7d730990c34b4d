"""Divides ranges of offsets into tasks, without I/O, so that a repeated batch has the same tasks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from ortoo.client import Queue
from ortoo.spark.reading.topic_state import OffsetSpan


@dataclass(frozen=True, slots=True, order=True)
class QueueSlice:
    """The part of one queue that one task reads: offsets from `begin` to before `end`."""

    queue: Queue
    begin: int
    end: int
    topic_id: int = 0
    """Id of the topic; a topic created later under the same name has another one. 0 = any."""

    @property
    def messages(self) -> int:
        """Number of messages."""
        return self.end - self.begin


def plan(
    ranges: Mapping[Queue, OffsetSpan],
    topic_ids: Mapping[str, int],
    *,
    min_partitions: int = 0,
    max_records: int = 0,
    max_queues_per_task: int = 16,
) -> list[tuple[QueueSlice, ...]]:
    """Divide `ranges` into tasks, in a fixed order; returns the slices of each task.

    A range is split into equal pieces only if `min_partitions` or `max_records` requires it, the largest ranges first.
    Small queues of one enode share a task, because each task costs about 16 ms.
    """
    slices = [
        QueueSlice(queue, held.begin, held.end, topic_ids.get(queue.topic, 0))
        for queue, held in sorted(ranges.items())
        if held.end > held.begin
    ]
    if not slices:
        return []
    pieces = _pieces(slices, min_partitions, max_records)
    cut = [part for piece, count in zip(slices, pieces, strict=True) for part in _cut(piece, count)]
    total = sum(piece.messages for piece in cut)
    limit = max(total // max(min_partitions, 1), 1) if min_partitions else max(total // 8, _SMALL_MESSAGES)
    if max_records:
        limit = min(limit, max_records)
    if len(cut) <= min_partitions:
        return [(piece,) for piece in cut]
    tasks: list[tuple[QueueSlice, ...]] = []
    for _, group in groupby(cut, key=lambda piece: piece.queue.enode):
        tasks += _merged(list(group), limit, max_queues_per_task)
    return tasks if len(tasks) >= min_partitions else [(piece,) for piece in cut]


def _pieces(slices: Sequence[QueueSlice], min_partitions: int, max_records: int) -> list[int]:
    """The number of pieces of each slice.

    Slices above the mean size are divided first. Then the slice with the largest pieces gets one piece more,
    repeatedly.
    """
    mean = max(sum(each.messages for each in slices) / max(min_partitions, 1), 1.0)
    pieces = [math.ceil(each.messages / mean) if min_partitions else 1 for each in slices]
    if max_records:
        pieces = [max(count, -(-each.messages // max_records)) for each, count in zip(slices, pieces, strict=True)]
    while sum(pieces) < min_partitions:
        sizes = [each.messages / count for each, count in zip(slices, pieces, strict=True)]
        largest = max(range(len(slices)), key=sizes.__getitem__)
        if sizes[largest] <= 1:
            break
        pieces[largest] += 1
    return pieces


def _cut(whole: QueueSlice, count: int) -> list[QueueSlice]:
    edges = [whole.begin + whole.messages * at // count for at in range(count + 1)]
    return [replace(whole, begin=begin, end=end) for begin, end in pairwise(edges) if end > begin]


def _merged(pieces: Sequence[QueueSlice], limit: int, queues_max: int) -> list[tuple[QueueSlice, ...]]:
    tasks: list[list[QueueSlice]] = []
    messages = 0
    for piece in pieces:
        if tasks and len(tasks[-1]) < queues_max and messages + piece.messages <= limit:
            tasks[-1].append(piece)
            messages += piece.messages
        else:
            tasks.append([piece])
            messages = piece.messages
    return [tuple(task) for task in tasks]


_SMALL_MESSAGES = 20_000
"""Queues are merged into tasks of this size, or an eighth of all messages if that is more."""

"""How far the messages of a queue are processed: pure bookkeeping.

Messages may finish in any order. What is acknowledged is the smallest offset that is not finished, so nothing before
an unfinished message is ever reported as done.
"""

from collections import deque
from collections.abc import Sequence


class BatchProgress:
    """The messages of one delivery, by their place in it."""

    __slots__ = ("_finished", "_floor", "count", "next_offset", "offsets", "size_bytes")

    def __init__(self, offsets: Sequence[int], next_offset: int, size_bytes: int = 0) -> None:
        """`offsets` are those of the delivered messages, rising; `next_offset` is where the next delivery starts."""
        self.count = len(offsets)
        self.size_bytes = size_bytes
        self.offsets = offsets
        self.next_offset = next_offset
        self._floor = 0
        self._finished: set[int] = set()

    @property
    def is_finished(self) -> bool:
        """Whether every message is finished."""
        return self._floor >= self.count

    @property
    def floor_offset(self) -> int:
        """The smallest offset that is not finished."""
        return self.next_offset if self.is_finished else self.offsets[self._floor]

    def finish(self, index: int) -> int:
        """The message at `index` is finished; returns how many are newly finished, 0 or 1."""
        if index < self._floor or index in self._finished:
            return 0
        self._finished.add(index)
        while self._floor in self._finished:
            self._finished.discard(self._floor)
            self._floor += 1
        return 1

    def finish_all(self) -> int:
        """All messages are finished; returns how many are newly finished."""
        fresh = self.count - self._floor - len(self._finished)
        self._finished.clear()
        self._floor = self.count
        return fresh


class QueueProgress:
    """The deliveries of one queue under one assignment, in order."""

    def __init__(self, start_offset: int = -1) -> None:
        """Start with nothing delivered, everything before `start_offset` being done; -1 = not known."""
        self.messages = self.size_bytes = 0
        """What was delivered and is not finished."""
        self._batches: deque[BatchProgress] = deque()
        self._reported = start_offset
        self._floor = start_offset

    def deliver(self, batch: BatchProgress) -> None:
        """A delivery came, after those before it."""
        if self._batches and not self._batches[-1].count and not batch.count:
            self._batches.pop()  # both say only that the offset moved on, and of such there may be one a message
        self._batches.append(batch)
        self.messages += batch.count
        self.size_bytes += batch.size_bytes

    def finished(self, batch: BatchProgress, count: int) -> int:
        """So many messages of a delivery are newly finished; returns the bytes that are free by it.

        Those of a delivery are in memory until its last message is finished.
        """
        size_bytes = batch.size_bytes if batch.is_finished else 0
        self.messages -= count
        self.size_bytes -= size_bytes
        return size_bytes

    @property
    def oldest_offset(self) -> int | None:
        """The first message that was delivered and is not finished; None when all are."""
        while self._batches and self._batches[0].is_finished:
            self._floor = self._batches.popleft().next_offset
        return self._batches[0].floor_offset if self._batches else None

    @property
    def floor_offset(self) -> int:
        """Everything before is done; -1 = not known yet."""
        oldest = self.oldest_offset
        # The first message of a delivery may lie behind messages nobody wanted; they count as done with it.
        if oldest is not None and oldest != self._batches[0].offsets[0]:
            self._floor = oldest
        return self._floor

    def to_acknowledge(self) -> int | None:
        """The offset to acknowledge now; None when nothing is new since the last call."""
        floor = self.floor_offset
        if floor <= self._reported:
            return None
        self._reported = floor
        return floor

"""The progress of a consumer in a queue, without I/O.

Messages may finish in any order. The acknowledged offset is the smallest unfinished offset, so that no unfinished
message is acknowledged.
"""

from collections import deque
from collections.abc import Sequence


class BatchProgress:
    """The finished and unfinished messages of one delivery. An index is a message's position in the delivery.

    A consumer may hold one for each message, so it has no set while messages finish in order.
    """

    __slots__ = ("_finished", "_first_offset", "_rows", "_unfinished_index", "next_offset", "size_bytes")

    def __init__(self, rows: Sequence[int], next_offset: int, size_bytes: int = 0, *, first_offset: int = 0) -> None:
        """`rows` of the messages, ascending; row 0 has the offset `first_offset`.

        `next_offset` is the first offset of the next delivery.
        """
        self.size_bytes = size_bytes
        self.next_offset = next_offset
        self._first_offset = first_offset
        self._rows = rows
        self._unfinished_index = 0
        self._finished: set[int] | None = None
        """Indexes of finished messages behind the first unfinished one; None = there was none yet."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self._rows)

    @property
    def is_finished(self) -> bool:
        """Whether every message is finished."""
        return self._unfinished_index >= len(self._rows)

    @property
    def is_begun(self) -> bool:
        """Whether the first message is finished."""
        return self._unfinished_index > 0

    @property
    def first_unfinished_offset(self) -> int:
        """The offset of the first unfinished message; `next_offset` when all messages are finished."""
        return self.next_offset if self.is_finished else self._first_offset + self._rows[self._unfinished_index]

    def finish(self, index: int) -> int:
        """Mark the message at `index` as finished; returns the number of newly finished messages, 0 or 1."""
        finished = self._finished
        if index < self._unfinished_index or (finished and index in finished):
            return 0
        if index > self._unfinished_index:
            if finished is None:
                finished = self._finished = set()
            finished.add(index)
            return 1
        self._unfinished_index += 1
        while finished and self._unfinished_index in finished:
            finished.discard(self._unfinished_index)
            self._unfinished_index += 1
        return 1

    def finish_all(self) -> int:
        """Mark all messages as finished; returns the number of newly finished messages."""
        newly_finished = self.count - self._unfinished_index - len(self._finished or ())
        self._finished = None
        self._unfinished_index = self.count
        return newly_finished


class QueueProgress:
    """The unfinished deliveries of one queue during one assignment, and the offset to commit."""

    def __init__(self, start_offset: int = -1) -> None:
        """All offsets before `start_offset` are finished; -1 = unknown."""
        self.messages = self.size_bytes = 0
        """Messages and bytes that were delivered and are not finished."""
        self._batches: deque[BatchProgress] = deque()
        self._taken_offset = start_offset
        self._commit_offset = start_offset

    def add_batch(self, batch: BatchProgress) -> None:
        """Add a delivery that follows all earlier ones."""
        if self._batches and not self._batches[-1].count and not batch.count:
            self._batches.pop()  # both only advance the offset; there may be one for each filtered message
        self._batches.append(batch)
        self.messages += batch.count
        self.size_bytes += batch.size_bytes

    def finish(self, batch: BatchProgress, count: int) -> int:
        """Count `count` newly finished messages of a delivery; returns the number of bytes released.

        The bytes of a delivery are released together with its last message.
        """
        size_bytes = batch.size_bytes if batch.is_finished else 0
        self.messages -= count
        self.size_bytes -= size_bytes
        return size_bytes

    @property
    def first_unfinished_offset(self) -> int | None:
        """The first offset that was delivered and is not finished; None when all delivered offsets are finished."""
        while self._batches and self._batches[0].is_finished:
            self._commit_offset = self._batches.popleft().next_offset
        return self._batches[0].first_unfinished_offset if self._batches else None

    @property
    def commit_offset(self) -> int:
        """The offset to commit; -1 = unknown. All offsets before it are finished."""
        oldest = self.first_unfinished_offset
        # Messages before the first one of a delivery were filtered out; they count as finished.
        if oldest is not None and self._batches[0].is_begun:
            self._commit_offset = oldest
        return self._commit_offset

    def take_commit_offset(self) -> int | None:
        """The offset to acknowledge now; None if that offset has not changed since the last call."""
        offset = self.commit_offset
        if offset <= self._taken_offset:
            return None
        self._taken_offset = offset
        return offset

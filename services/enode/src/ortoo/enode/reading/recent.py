"""Recently stored batches in memory: readers at the tail never touch the disk."""

from collections import deque
from collections.abc import Callable

from ortoo.common.records.sealed_batch import StoredBatch

OVERHEAD_PER_BATCH_BYTES = 400
"""Approximate memory of a batch beside its bytes."""


class RecentBatches:
    """The newest batches that fit into memory, by position. The oldest batch is dropped first.

    A batch that is not on this disk yet is kept, because its readers find it nowhere else.
    """

    def __init__(self, bytes_max: int) -> None:
        """Keep about `bytes_max` bytes."""
        self.durable_position: Callable[[], int] = lambda: 1 << 63
        """Returns the position below which all batches are on this disk."""
        self._bytes_max = bytes_max
        self._batches: dict[int, StoredBatch] = {}
        self._order: deque[tuple[int, int]] = deque()
        self.bytes = 0

    def get(self, position: int) -> StoredBatch | None:
        """The batch whose frame lies at `position`, if it is still in memory."""
        return self._batches.get(position)

    def put(self, position: int, batch: StoredBatch) -> None:
        """Remember a batch that was committed."""
        if not batch.batch.records:
            return  # it was found in the log at a start, and is read from there
        size = len(batch.batch.records) + OVERHEAD_PER_BATCH_BYTES
        self._batches[position] = batch
        self._order.append((position, size))
        self.bytes += size
        while self.bytes > self._bytes_max and self._order[0][0] < self.durable_position():
            oldest, freed = self._order.popleft()
            del self._batches[oldest]
            self.bytes -= freed

    def drop_below(self, position: int) -> None:
        """Forget batches of deleted segments."""
        while self._order and self._order[0][0] < position:
            oldest, freed = self._order.popleft()
            del self._batches[oldest]
            self.bytes -= freed

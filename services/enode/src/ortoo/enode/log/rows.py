"""Rows of a queue's index: one for each batch, in arrays."""

import builtins
from array import array
from bisect import bisect_left, bisect_right

import numpy as np

ROW_BYTES = 32
_SUMMED_ROWS = 65_536
"""Number of rows whose lengths are added at once."""


class IndexRows:
    """Batches of one queue in one segment, in offset order. Loaded and new rows have the same form."""

    __slots__ = ("counts", "first_offsets", "lengths", "positions", "stored_at_ms")

    def __init__(self) -> None:
        """Start without rows."""
        self.first_offsets = array("q")
        self.positions = array("q")
        self.stored_at_ms = array("q")
        self.counts = array("I")
        self.lengths = array("I")

    def __len__(self) -> int:
        return len(self.first_offsets)

    def append(self, first_offset: int, count: int, position: int, length: int, stored_at_ms: int) -> None:
        """Add the next batch: its frame lies at `position` and has `length` bytes of prefix and payload."""
        self.first_offsets.append(first_offset)
        self.counts.append(count)
        self.positions.append(position)
        self.lengths.append(length)
        self.stored_at_ms.append(stored_at_ms)

    @property
    def bytes(self) -> int:
        """Approximate memory of the rows."""
        return len(self.first_offsets) * ROW_BYTES + 500

    @property
    def begin_offset(self) -> int:
        """The first offset; there must be a row."""
        return self.first_offsets[0]

    @property
    def end_offset(self) -> int:
        """The offset after the last; there must be a row."""
        return self.first_offsets[-1] + self.counts[-1]

    def find(self, offset: int) -> int:
        """The row whose batch holds `offset`. If no batch holds it: -1 minus the number of the next row."""
        row = bisect_right(self.first_offsets, offset) - 1
        if row >= 0 and offset < self.first_offsets[row] + self.counts[row]:
            return row
        return -1 - (row + 1)

    def row(self, at: int) -> tuple[int, int, int, int]:
        """First offset, count, position and length of a row."""
        return self.first_offsets[at], self.counts[at], self.positions[at], self.lengths[at]

    def end_fitting(self, row: int, bytes_max: int, end: int) -> int:
        """The end of the gapless rows from `row` on that fit `bytes_max`: at most `end`, and at least `row` + 1."""
        total, expected, end = 0, -1, min(max(end, row + 1), len(self))
        for at in range(row, end):
            total += self.lengths[at]
            if at > row and (total > bytes_max or self.first_offsets[at] != expected):
                return at
            expected = self.first_offsets[at] + self.counts[at]
        return end

    def measure(self, row: int, bytes_max: int) -> tuple[int, int]:
        """The end, exclusive, of the rows from `row` on that fit `bytes_max`, and their bytes."""
        size_bytes = 0
        while row < len(self):
            sums = np.cumsum(np.frombuffer(self.lengths, np.uint32, offset=row * 4)[:_SUMMED_ROWS], dtype=np.int64)
            count = int(np.searchsorted(sums, bytes_max - size_bytes, side="right"))
            size_bytes += int(sums[count - 1]) if count else 0
            row += count
            if count < len(sums):
                break
        return row, size_bytes

    def find_time(self, stored_at_ms: int) -> int:
        """The first row stored at or after `stored_at_ms`; the number of rows if there is none."""
        return bisect_left(self.stored_at_ms, stored_at_ms)

    @property
    def columns(self) -> "tuple[array[int], ...]":
        """All columns, in the order of the index file."""
        return self.first_offsets, self.positions, self.stored_at_ms, self.counts, self.lengths

    def truncate(self, position: int) -> None:
        """Forget the batches at log position `position` and behind it."""
        count = bisect_left(self.positions, position)
        for column in self.columns:
            del column[count:]

    def encoded(self) -> builtins.bytes:
        """The columns one after another, little-endian."""
        return b"".join(column.tobytes() for column in self.columns)

    @classmethod
    def decoded(cls, data: builtins.bytes) -> "IndexRows":
        """Read the bytes of `encoded`."""
        rows = cls()
        count = len(data) // ROW_BYTES
        at = 0
        for column in rows.columns:
            width = column.itemsize * count
            column.frombytes(data[at : at + width])
            at += width
        return rows

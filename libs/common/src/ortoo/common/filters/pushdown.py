"""A reader's filter, columns and end offset, sent to the enode and applied there to save network traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ortoo.common.arrays.gather import is_narrow, narrowed, written
from ortoo.common.arrays.message_table import MessageTable, joined, taken
from ortoo.common.arrays.opened_batch import Int32s
from ortoo.common.filters.message_filter import MessageFilter, compile_filter
from ortoo.common.filters.projection import Columns, projected
from ortoo.common.filters.selection import ROW_BYTES, matching
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX, SealedBatch
from ortoo.common.records.stored_batch import StoredBatch

TIME_BYTES = 8
"""The size of a row's storage time."""


class ChosenPart(NamedTuple):
    """The selected messages of one or several stored batches; `rows` and `row_stored_at_ms` as in `Selected`."""

    first_offset: int
    next_offset: int
    stored_at_ms: int
    batch: SealedBatch
    rows: bytes
    row_stored_at_ms: bytes = b""


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The messages that match, up to an offset, and of these some columns."""

    tag_expression: str = ""
    sql_expression: str = ""
    columns: Columns = frozenset()
    """Empty = all."""
    to_offset: int = 0
    """Exclusive; 0 = no end."""
    joined: bool = False
    """Rows of several stored batches may be sent as one batch, where few of each are selected."""

    @classmethod
    def of(
        cls, wanted: MessageFilter | None, columns: Columns, to_offset: int, *, joined: bool = False
    ) -> "Pushdown | None":
        """The pushdown of a reader's request; None when it requests everything."""
        if wanted is None and not columns:
            return None
        tags, sql = ("", "") if wanted is None else wanted.expressions
        return cls(tags, sql, columns, to_offset, joined)

    def compiled(self) -> MessageFilter | None:
        """The filter; None = everything. Errors: Invalid."""
        return compile_filter(self.tag_expression, self.sql_expression, "pushdown")


class _Few(NamedTuple):
    """A few rows of one stored batch, to be joined with those of others."""

    first_offset: int
    next_offset: int
    stored_at_ms: int
    rows: Int32s
    table: MessageTable

    @property
    def sort(self) -> tuple[bool, ...]:
        """Which of the columns that must not be filled with zeros are absent. Only rows with equal ones are joined."""
        table = self.table
        return table.born_at_ms is None, table.deliver_at_ms is None, table.priority is None

    @property
    def size_bytes(self) -> int:
        """The size of the rows, with their numbers and times. A few rows may be nearly all bytes of a batch."""
        return self.table.size_bytes + len(self.rows) * (ROW_BYTES + TIME_BYTES)


class Choice:
    """The selected messages of a range of a queue, gathered batch by batch."""

    def __init__(self, pushdown: Pushdown, wanted: MessageFilter | None, from_offset: int) -> None:
        """Select by `pushdown`, whose filter is `wanted`, from an offset on."""
        self._pushdown = pushdown
        self._wanted = wanted
        self._parts: list[ChosenPart] = []
        self._few: list[_Few] = []
        self._few_messages = 0
        self.next_offset = from_offset
        """The offset after the last row that was examined."""
        self.size_bytes = 0
        """The approximate size of the selected messages."""
        self.looked_bytes = 0

    def look(self, stored: StoredBatch) -> None:
        """Select from the next batch. Errors: Invalid, Unsupported, and then nothing of it was selected."""
        columns, to_offset = self._pushdown.columns, self._pushdown.to_offset or None
        first, batch = stored.first_offset, stored.batch
        opened, rows, stop, _ = matching(stored, self.next_offset, to_offset, self._wanted)
        behind = first + stop
        if rows is None or len(rows):
            if self._pushdown.joined and rows is not None and opened is not None and is_narrow(opened, rows):
                table = taken(opened, rows, columns)
                self._join(_Few(first, behind, stored.stored_at_ms, rows, table))
            else:
                if rows is not None and opened is not None:
                    batch, rows = narrowed(opened, rows, columns)
                batch = projected(batch, columns)
                named = b"" if rows is None else rows.tobytes()
                self._end_few()
                self._parts.append(ChosenPart(first, behind, stored.stored_at_ms, batch, named))
                self.size_bytes += len(batch.records)
        self.looked_bytes += len(stored.batch.records)
        self.next_offset = max(self.next_offset, behind)

    def _join(self, found: _Few) -> None:
        messages = self._few_messages + len(found.rows)
        if self._few and (found.sort != self._few[0].sort or messages > MESSAGES_MAX):
            self._end_few()
        self._few.append(found)
        self._few_messages += len(found.rows)
        self.size_bytes += found.size_bytes

    def _end_few(self) -> None:
        self._parts += _together(self._few, self._pushdown.columns)
        self._few, self._few_messages = [], 0

    def parts(self) -> Sequence[ChosenPart]:
        """All selected messages, in order."""
        return [*self._parts, *_together(self._few, self._pushdown.columns)]


def _together(few: Sequence[_Few], columns: Columns) -> list[ChosenPart]:
    """Rows of several batches as one batch, or as more where one would be too large."""
    if not few:
        return []
    first, last = few[0], few[-1]
    batch = written(joined([each.table for each in few]))
    # This is checked before rows are left out, because a batch that declares too large bodies is refused when opened.
    if len(batch.records) > RECORDS_BYTES_MAX and len(few) > 1:
        half = len(few) // 2
        return _together(few[:half], columns) + _together(few[half:], columns)
    rows = np.concatenate([each.rows + (each.first_offset - first.first_offset) for each in few]).astype("<i4")
    times = np.repeat([each.stored_at_ms for each in few], [len(each.rows) for each in few]).astype("<i8")
    batch = projected(batch, columns)
    return [
        ChosenPart(first.first_offset, last.next_offset, first.stored_at_ms, batch, rows.tobytes(), times.tobytes())
    ]

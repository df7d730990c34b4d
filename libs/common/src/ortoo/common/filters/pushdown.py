"""A reader's filter, columns and end offset, sent to the enode and applied there to save network traffic."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ortoo.common.arrays.gather import is_narrow, narrow, write_table
from ortoo.common.arrays.message_table import MessageTable, concat_tables, take_rows
from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.filters.message_filter import MessageFilter, compile_filter
from ortoo.common.filters.projection import Columns, project
from ortoo.common.filters.selection import ROW_BYTES, match_rows
from ortoo.common.records.columns import MESSAGE_COLUMNS, Presence
from ortoo.common.records.sealed_batch import (
    COPY_RECORD_BYTES_MAX,
    MESSAGES_MAX,
    RECORDS_BYTES_MAX,
    SealedBatch,
    StoredBatch,
)

_NOT_FILLED: Final = tuple(
    column.name for column in MESSAGE_COLUMNS if column.presence in (Presence.ALWAYS, Presence.ALL_OR_NONE)
)
TIME_BYTES = 8
"""The size of a row's storage time."""


class SelectedPart(NamedTuple):
    """The selected messages of one or several stored batches.

    `rows` and `row_stored_at_ms` have the meaning of the fields of `SelectedRows`.
    """

    first_offset: int
    next_offset: int
    stored_at_ms: int
    batch: SealedBatch
    rows: bytes
    row_stored_at_ms: bytes = b""


@dataclass(frozen=True, slots=True)
class Pushdown:
    """A reader's selection: a filter for messages, the offset at which to stop, and the columns to return."""

    tag_expression: str = ""
    sql_expression: str = ""
    columns: Columns = frozenset()
    """Empty = all."""
    to_offset: int = 0
    """Exclusive; 0 = no end."""
    coalesce: bool = False
    """Rows of several stored batches may be sent as one batch, if few rows of each batch are selected."""

    @classmethod
    def of(
        cls, message_filter: MessageFilter | None, columns: Columns, to_offset: int, *, coalesce: bool = False
    ) -> "Pushdown | None":
        """The pushdown of a reader's request; None when it requests everything."""
        if message_filter is None and not columns:
            return None
        tags, sql = ("", "") if message_filter is None else message_filter.expressions
        return cls(tags, sql, columns, to_offset, coalesce)

    def compile(self) -> MessageFilter | None:
        """The filter; None = everything. Errors: Invalid."""
        return compile_filter(self.tag_expression, self.sql_expression, "pushdown")


class _PendingRows(NamedTuple):
    """A few rows of one stored batch, to be joined with those of others."""

    first_offset: int
    next_offset: int
    stored_at_ms: int
    rows: Int32s
    table: MessageTable

    @property
    def sort(self) -> tuple[bool, ...]:
        """A key of rows: whether each column that must not be filled with zeros is absent.

        Only rows with equal keys are joined.
        """
        return tuple([name not in self.table.columns for name in _NOT_FILLED])

    @property
    def size_bytes(self) -> int:
        """The size of the rows, with their numbers and times."""
        return self.table.size_bytes + len(self.rows) * (ROW_BYTES + TIME_BYTES)


class BatchSelector:
    """Selects messages of a range of a queue, batch by batch."""

    def __init__(self, pushdown: Pushdown, message_filter: MessageFilter | None, from_offset: int) -> None:
        """Select from `from_offset` on; `message_filter` is the compiled filter of `pushdown`."""
        self._pushdown = pushdown
        self._message_filter = message_filter
        self._parts: list[SelectedPart] = []
        self._pending: list[_PendingRows] = []
        self._pending_messages = 0
        self.next_offset = from_offset
        """The offset after the last row that was examined."""
        self.size_bytes = 0
        """The approximate size of the selected messages."""
        self.scanned_bytes = 0

    @property
    def part_count(self) -> int:
        """The number of complete parts so far."""
        return len(self._parts)

    def add_batch(self, stored: StoredBatch) -> None:
        """Select messages of the next batch. After an error (Invalid, Unsupported) none of its messages is selected."""
        columns, to_offset = self._pushdown.columns, self._pushdown.to_offset or None
        first, batch = stored.first_offset, stored.batch
        opened, rows, stop, _ = match_rows(stored, self.next_offset, to_offset, self._message_filter)
        behind = first + stop
        if rows is None or len(rows):
            if self._pushdown.coalesce and rows is not None and opened is not None and is_narrow(opened, rows):
                table = take_rows(opened, rows, columns)
                self._add_rows(_PendingRows(first, behind, stored.stored_at_ms, rows, table))
            else:
                if rows is not None and opened is not None:
                    batch, rows = narrow(opened, rows, columns)
                elif rows is not None and columns:  # at an end of the range
                    batch = _with_rows(batch, rows, columns)
                batch = project(batch, columns)
                named = b"" if rows is None else rows.tobytes()
                self._flush_pending()
                self._parts.append(SelectedPart(first, behind, stored.stored_at_ms, batch, named))
                self.size_bytes += len(batch.records)
        self.scanned_bytes += len(stored.batch.records)
        self.next_offset = max(self.next_offset, behind)

    def _add_rows(self, found: _PendingRows) -> None:
        messages = self._pending_messages + len(found.rows)
        if self._pending and (found.sort != self._pending[0].sort or messages > MESSAGES_MAX):
            self._flush_pending()
        self._pending.append(found)
        self._pending_messages += len(found.rows)
        self.size_bytes += found.size_bytes

    def _flush_pending(self) -> None:
        self._parts += _concat_pending(self._pending, self._pushdown.columns)
        self._pending, self._pending_messages = [], 0

    def finish(self) -> Sequence[SelectedPart]:
        """All selected messages, in order."""
        return [*self._parts, *_concat_pending(self._pending, self._pushdown.columns)]


def _with_rows(batch: SealedBatch, rows: Int32s, columns: Columns) -> SealedBatch:
    """A batch of only these rows, or the whole batch if they are many or its columns cannot be read here.

    This costs as little as a projection, which copies all rows.
    """
    with contextlib.suppress(Invalid, Unsupported):  # the reader gets the error when it opens the batch
        batch.check(single_bytes_max=COPY_RECORD_BYTES_MAX)
        return narrow(OpenedBatch(batch), rows, columns)[0]
    return batch


def _concat_pending(pending: Sequence[_PendingRows], columns: Columns) -> list[SelectedPart]:
    """Join rows of several batches into one batch, or into several if one batch would be too large."""
    if not pending:
        return []
    first, last = pending[0], pending[-1]
    batch = write_table(concat_tables([each.table for each in pending]))
    # This is checked before rows are left out, because a batch that declares too large bodies is refused when opened.
    if len(batch.records) > RECORDS_BYTES_MAX and len(pending) > 1:
        half = len(pending) // 2
        return _concat_pending(pending[:half], columns) + _concat_pending(pending[half:], columns)
    rows = np.concatenate([each.rows + (each.first_offset - first.first_offset) for each in pending]).astype("<i4")
    times = np.repeat([each.stored_at_ms for each in pending], [len(each.rows) for each in pending]).astype("<i8")
    batch = project(batch, columns)
    return [
        SelectedPart(first.first_offset, last.next_offset, first.stored_at_ms, batch, rows.tobytes(), times.tobytes())
    ]

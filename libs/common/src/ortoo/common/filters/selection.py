"""The selection of rows of a stored batch for a reader, by offset, filter and expiry."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ortoo.common.arrays.gather import narrow
from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.records.columns import EXPIRE_AT
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch
from ortoo.common.records.wire import read_fields

ROW_BYTES = 4
"""The size of a row number."""


def may_expire(batch: SealedBatch) -> bool:
    """Whether a message of the batch has an expiry time; reads only the head of the batch."""
    return EXPIRE_AT.number in read_fields(memoryview(batch.records), "batch.records")


def unexpired_rows(opened: OpenedBatch, now_ms: int) -> Int32s | None:
    """The rows that have not expired, in order; None if no row has expired."""
    times = opened.expire_at_ms
    if times is None:
        return None
    alive = (times == 0) | (times > now_ms)
    return None if alive.all() else np.flatnonzero(alive).astype("<i4")


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """A batch and its selected rows (empty = all); `batch` is None if no row was selected.

    `rows` are row numbers of the stored batch. If `batch` has as many messages as `rows` has numbers, it holds only the
    selected rows.
    """

    first_offset: int
    next_offset: int
    stored_at_ms: int
    batch: SealedBatch | None
    rows: bytes
    messages: int
    expired: int = 0
    """The number of matching messages that were left out because they have expired."""
    row_stored_at_ms: bytes = b""
    """int64 each: the time at which each row was stored, where rows of several stored batches are sent as one."""


class MatchingRows(NamedTuple):
    """The rows of a stored batch that match a reader's request."""

    opened: OpenedBatch | None
    """The batch, if its columns had to be read."""
    rows: Int32s | None
    """None = the whole batch."""
    stop: int
    """The row after the last one that was examined."""
    expired: int = 0


def select_rows(
    stored: StoredBatch,
    from_offset: int,
    to_offset: int | None = None,
    message_filter: MessageFilter | None = None,
    *,
    now_ms: int = 0,
) -> SelectedRows:
    """Select `from_offset`..`to_offset` (exclusive) of a stored batch by filter, without messages expired at `now_ms`.

    With `now_ms` 0 nothing expires. The stored batch is returned whole, unless less than half of it is selected.
    """
    found = match_rows(stored, from_offset, to_offset, message_filter, now_ms=now_ms)
    batch, first, rows = stored.batch, stored.first_offset, found.rows
    if rows is None:
        return SelectedRows(first, stored.next_offset, stored.stored_at_ms, batch, b"", batch.count)
    if not len(rows):
        return SelectedRows(first, first + found.stop, stored.stored_at_ms, None, b"", 0, found.expired)
    if found.opened is not None:
        batch, rows = narrow(found.opened, rows)
    return SelectedRows(first, first + found.stop, stored.stored_at_ms, batch, rows.tobytes(), len(rows), found.expired)


def match_rows(
    stored: StoredBatch,
    from_offset: int,
    to_offset: int | None = None,
    message_filter: MessageFilter | None = None,
    *,
    now_ms: int = 0,
) -> MatchingRows:
    """The numbers of the rows that `select_rows` selects for the same arguments. Errors: Invalid, Unsupported."""
    batch, first = stored.batch, stored.first_offset
    start = max(from_offset - first, 0)
    stop = batch.count if to_offset is None else min(batch.count, to_offset - first)
    expires = bool(now_ms) and may_expire(batch)
    opened = OpenedBatch(batch) if message_filter is not None or expires else None
    hits = message_filter.select(opened) if message_filter is not None and opened is not None else None
    alive = unexpired_rows(opened, now_ms) if expires and opened is not None else None
    if start == 0 and stop == batch.count and (hits is not None or alive is None):
        rows = hits
    else:
        rows = _between(hits, start, stop)
    if rows is None or alive is None:
        return MatchingRows(opened, rows, stop)
    living = np.intersect1d(rows, alive, assume_unique=True)
    return MatchingRows(opened, living, stop, len(rows) - len(living))


def _between(rows: Int32s | None, start: int, stop: int) -> Int32s:
    if rows is None:
        return np.arange(start, stop, dtype="<i4")
    low, high = np.searchsorted(rows, (start, stop))
    return rows[low:high]

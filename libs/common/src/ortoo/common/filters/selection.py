"""What of a stored batch a reader gets: from which row on, and which of its rows."""

from dataclasses import dataclass

import numpy as np

from ortoo.common.arrays.gather import narrowed
from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.projection import Columns
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.stored_batch import StoredBatch
from ortoo.common.records.wire import read_fields

ROW_BYTES = 4
"""What the number of a row takes."""
_EXPIRY = NUMBERS["expire_at_ms"]


def may_expire(batch: SealedBatch) -> bool:
    """Whether a message of the batch has a time at which it expires; looks at the head of the batch alone."""
    return _EXPIRY in read_fields(memoryview(batch.records), "batch.records")


def unexpired(opened: OpenedBatch, now_ms: int) -> Int32s | None:
    """The rows that groups still get, in order; None when that is all of them."""
    times = opened.expire_at_ms
    if times is None:
        return None
    alive = (times == 0) | (times > now_ms)
    return None if alive.all() else np.flatnonzero(alive).astype("<i4")


@dataclass(frozen=True, slots=True)
class Selected:
    """A batch and its rows that are meant (empty = all); without a batch none was wanted.

    Rows are those of the stored batch. When there are as many as the batch has messages, it holds just those.
    """

    first_offset: int
    next_offset: int
    stored_at_ms: int
    batch: SealedBatch | None
    rows: bytes
    messages: int
    expired: int = 0
    """How many messages that were wanted are left out because their time is over."""


def selected(
    stored: StoredBatch,
    from_offset: int,
    to_offset: int | None = None,
    wanted: MessageFilter | None = None,
    *,
    columns: Columns = frozenset(),
    now_ms: int = 0,
) -> Selected:
    """Cut a stored batch to `from_offset`..`to_offset` (exclusive), filter it, and leave out what expired by `now_ms`.

    With `now_ms` 0 nothing expires. The producer's bytes stay whole, unless less than half of them are left; then the
    batch may lack what is not in `columns` (empty = all).
    """
    batch, first = stored.batch, stored.first_offset
    start = max(from_offset - first, 0)
    stop = batch.count if to_offset is None else min(batch.count, to_offset - first)
    whole = start == 0 and stop == batch.count
    expires = bool(now_ms) and may_expire(batch)
    opened = OpenedBatch(batch) if wanted is not None or expires else None
    matching = wanted.select(opened) if wanted is not None and opened is not None else None
    alive = unexpired(opened, now_ms) if expires and opened is not None else None
    if whole and matching is None and alive is None:
        return Selected(first, stored.next_offset, stored.stored_at_ms, batch, b"", batch.count)
    rows = _between(matching, start, stop)
    expired = 0
    if alive is not None:
        before, rows = len(rows), np.intersect1d(rows, alive, assume_unique=True)
        expired = before - len(rows)
    if not len(rows):
        return Selected(first, first + stop, stored.stored_at_ms, None, b"", 0, expired)
    if opened is not None:
        batch, rows = narrowed(opened, rows, columns)
    return Selected(first, first + stop, stored.stored_at_ms, batch, rows.tobytes(), len(rows), expired)


def _between(rows: Int32s | None, start: int, stop: int) -> Int32s:
    if rows is None:
        return np.arange(start, stop, dtype="<i4")
    low, high = np.searchsorted(rows, (start, stop))
    return rows[low:high]

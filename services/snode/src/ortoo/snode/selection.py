"""What of a stored batch a reader gets: from which row on, and which of its rows."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ortoo.common.sealed_batch import SealedBatch
from ortoo.snode.enode_link import StoredBatch
from ortoo.snode.opened_batch import OpenedBatch


class TagFilter:
    """Tags separated by "||"."""

    def __init__(self, tags: frozenset[bytes]) -> None:
        self._tags = tags

    @classmethod
    def parse(cls, expression: str) -> "TagFilter | None":
        """Read an expression; None = everything."""
        tags = frozenset(part.strip().encode() for part in expression.split("||") if part.strip())
        return None if not tags or b"*" in tags else cls(tags)

    def mask(self, opened: OpenedBatch) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """One bool a row."""
        column = opened.tag
        if column is None:
            return np.zeros(opened.count, np.bool_)
        data, offsets = bytes(column.texts.data), column.texts.offsets
        wanted = np.array([data[a:b] in self._tags for a, b in pairwise(offsets)], np.bool_)
        if not wanted.any():
            return np.zeros(opened.count, np.bool_)
        hits = wanted[column.codes]
        return hits if column.valid is None else hits & column.valid


@dataclass(frozen=True, slots=True)
class Selected:
    """A batch and its rows that are meant; without a batch none was wanted."""

    first_offset: int
    next_offset: int
    stored_at_ms: int
    batch: SealedBatch | None
    rows: bytes
    messages: int


def selected(
    stored: StoredBatch, from_offset: int, to_offset: int | None = None, tags: TagFilter | None = None
) -> Selected:
    """Cut a stored batch to `from_offset`..`to_offset` (exclusive) and filter it; offsets of rows stay as they are."""
    batch, first = stored.batch, stored.first_offset
    start = max(from_offset - first, 0)
    stop = batch.count if to_offset is None else min(batch.count, to_offset - first)
    if start == 0 and stop == batch.count and tags is None:
        return Selected(first, first + batch.count, stored.stored_at_ms, batch, b"", batch.count)
    if tags is None:
        rows = np.arange(start, stop, dtype="<i4")
    else:
        rows = (np.flatnonzero(tags.mask(OpenedBatch(batch))[start:stop]) + start).astype("<i4")
    if not len(rows):
        return Selected(first, first + stop, stored.stored_at_ms, None, b"", 0)
    named = b"" if len(rows) == batch.count else rows.tobytes()
    return Selected(first, first + stop, stored.stored_at_ms, batch, named, len(rows))

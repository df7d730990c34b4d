"""What of a stored batch a reader gets: from which row on, which of its rows and columns.

    wanted = compile_filter("paid || sent", "")     # None = everything
    rows = wanted.select(opened)                    # None = all rows; otherwise the int32 rows that match, maybe none

Tags are compared as whole texts; a message without a tag never matches a named tag. The work is one look at each text
of the dictionary and one array operation over the codes. Messages whose time is over go to no group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from ortoo.common.arrays.gather import narrowed
from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.common.records import text_rules
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.common.records.wire import Field, bytes_head, number_field, read_fields
from ortoo.snode.enodes.link import StoredBatch
from ortoo.snode.filters.sql_filter import SqlFilter

EXPRESSION_LENGTH_MAX = 16 << 10
"""How many characters one expression may have."""
EVERYTHING = "*"
SEPARATOR = "||"


class TagFilter:
    """Which messages a subscription wants."""

    __slots__ = ("_wanted", "tags")

    def __init__(self, tags: frozenset[str] | None) -> None:
        """Want the messages with one of `tags`, or all if it is None."""
        self.tags = tags
        self._wanted = frozenset() if tags is None else frozenset(tag.encode() for tag in tags)

    @classmethod
    def compile(cls, expression: str, field: str = "filter") -> "TagFilter":
        """Read an expression: "", "*", or tags separated by "||". Raises Invalid, naming `field`, for another."""
        if len(expression) > EXPRESSION_LENGTH_MAX:
            raise Invalid(f"{len(expression)} characters; at most {EXPRESSION_LENGTH_MAX} are allowed", field=field)
        if not expression.strip():
            return cls(None)
        tags = [tag for part in expression.split(SEPARATOR) if (tag := part.strip())]
        if not tags:
            raise Invalid(f"{expression!r} names no tag; write '*' for all, or tags such as 'a || b'", field=field)
        if EVERYTHING in tags:
            return cls(None)
        for tag in tags:
            text_rules.TAG.check(tag, field)
        return cls(frozenset(tags))

    @property
    def wants_everything(self) -> bool:
        """Whether no message is ever filtered out."""
        return self.tags is None

    def select(self, opened: OpenedBatch) -> Int32s | None:
        """Return the rows that match, in order; None when all do."""
        if self.tags is None:
            return None
        column = opened.tag
        if column is None:
            return _NO_ROWS
        data = bytes(column.texts.data)
        wanted = np.array([data[start:end] in self._wanted for start, end in pairwise(column.texts.offsets)], np.bool_)
        if not wanted.any():
            return _NO_ROWS
        if column.valid is None and wanted.all():
            return None
        hits = wanted[column.codes]
        rows = np.flatnonzero(hits if column.valid is None else hits & column.valid).astype("<i4")
        return None if len(rows) == opened.count else rows


_NO_ROWS: Int32s = np.zeros(0, "<i4")


class MessageFilter(Protocol):
    """Chooses rows of a batch by its columns; bodies are not looked at."""

    def select(self, opened: OpenedBatch) -> Int32s | None:
        """Return the rows that match, in order; None when all do."""


def compile_filter(tag_expression: str, sql_expression: str, path: str = "") -> MessageFilter | None:
    """The filter that a request asks for; None = everything. Errors: Invalid, naming the field below `path`."""
    prefix = f"{path}." if path else ""
    if sql_expression:
        if tag_expression.strip() not in ("", "*"):
            raise Invalid(
                "there is a tag expression as well; give one, TAGS means the tag in SQL",
                field=f"{prefix}sql_expression",
            )
        return SqlFilter.compile(sql_expression, f"{prefix}sql_expression")
    tags = TagFilter.compile(tag_expression, f"{prefix}tag_expression")
    return None if tags.wants_everything else tags


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
    now_ms: int = 0,
) -> Selected:
    """Cut a stored batch to `from_offset`..`to_offset` (exclusive), filter it, and leave out what expired by `now_ms`.

    With `now_ms` 0 nothing expires. The producer's bytes stay whole, unless less than half of them are left.
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
        return Selected(first, first + batch.count, stored.stored_at_ms, batch, b"", batch.count)
    rows = _between(matching, start, stop)
    expired = 0
    if alive is not None:
        before, rows = len(rows), np.intersect1d(rows, alive, assume_unique=True)
        expired = before - len(rows)
    if not len(rows):
        return Selected(first, first + stop, stored.stored_at_ms, None, b"", 0, expired)
    if opened is not None:
        batch, rows = narrowed(opened, rows)
    return Selected(first, first + stop, stored.stored_at_ms, batch, rows.tobytes(), len(rows), expired)


def _between(rows: Int32s | None, start: int, stop: int) -> Int32s:
    if rows is None:
        return np.arange(start, stop, dtype="<i4")
    low, high = np.searchsorted(rows, (start, stop))
    return rows[low:high]


Columns = frozenset[int]
"""Field numbers of a record batch; empty = all of it."""

_PATH = "batch.records"
_SAVED_PART: Final = 8
"""A batch is written anew only if an eighth of its bytes goes: sending a byte costs some ten times of copying it."""
_HEAD: Final = frozenset(
    NUMBERS[name]
    for name in (
        "format",
        "required_features",
        "count",
        "codec",
        "body_inflated_bytes",
        "body_offsets",
        "body_encoding",
    )
)
"""Without these nobody could open the batch."""


def columns_of(names: Sequence[str]) -> Columns:
    """The columns with these names, none for all. Errors: Invalid for a name that no field of a record batch has."""
    unknown = sorted(set(names) - set(NUMBERS))
    if unknown:
        raise Invalid(f"{unknown[0]!r} is no column; there are {', '.join(NUMBERS)}", field="columns")
    wanted = frozenset(NUMBERS[name] for name in names)
    return wanted | _HEAD if wanted else wanted


def projected(batch: SealedBatch, columns: Columns) -> SealedBatch:
    """A batch with at least these columns of `batch`, and all its rows.

    Errors: Invalid for bytes that are no batch, or not those that the producer sealed: they get no new seal here.
    """
    if not columns:
        return batch
    fields = read_fields(memoryview(batch.records), _PATH)
    kept = {number: field for number, field in fields.items() if number in columns}
    left_out = sum(_size(field) for number, field in fields.items() if number not in columns)
    if _SAVED_PART * left_out < len(batch.records):
        return batch
    batch.check()
    parts: list[bytes | memoryview] = []
    for number, field in kept.items():
        parts += [number_field(number, field)] if isinstance(field, int) else [bytes_head(number, len(field)), field]
    records = b"".join(parts)
    return replace(batch, records=records, records_crc32c=crc32c(records))


def _size(field: Field) -> int:
    return 0 if isinstance(field, int) else len(field)

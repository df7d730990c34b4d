"""Selects messages of a batch by tags or by a SQL condition.

    wanted = compile_filter("paid || sent", "")     # None = everything
    rows = wanted.select(opened)                    # None = all rows; otherwise the matching int32 rows, or none

Tags are compared as whole texts; a message without a tag never matches a named tag. A selection compares each text of
the dictionary once and does one array operation over the codes.
"""

from itertools import pairwise

import numpy as np

from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.common.filters.sql_filter import SqlFilter
from ortoo.common.records import text_rules

EXPRESSION_LENGTH_MAX = 16 << 10
"""Maximum number of characters of an expression."""
EVERYTHING = "*"
SEPARATOR = "||"


class TagFilter:
    """Selects the messages whose tag is in a set of tags."""

    __slots__ = ("_tags", "tags")

    def __init__(self, tags: frozenset[str]) -> None:
        """Select the messages with one of `tags`."""
        self.tags = tags
        self._tags = frozenset(tag.encode() for tag in tags)

    @property
    def expressions(self) -> tuple[str, str]:
        """The tags in alphabetical order, and an empty SQL expression."""
        return SEPARATOR.join(sorted(self.tags)), ""

    def select(self, opened: OpenedBatch) -> Int32s | None:
        """Return the rows that match, in order; None when all do."""
        column = opened.tag
        if column is None:
            return _NO_ROWS
        data = bytes(column.texts.data)
        if not any(tag in data for tag in self._tags):
            return _NO_ROWS  # most batches, when the tag is a rare one
        texts = pairwise(column.texts.offsets.tolist())
        wanted = [data[start:end] in self._tags for start, end in texts]
        number = sum(wanted)
        if not number:
            return _NO_ROWS
        hits = column.codes == wanted.index(True) if number == 1 else np.array(wanted)[column.codes]
        rows = (hits if column.valid is None else hits & column.valid).nonzero()[0].astype("<i4")
        return None if len(rows) == opened.count else rows


_NO_ROWS: Int32s = np.zeros(0, "<i4")


MessageFilter = TagFilter | SqlFilter
"""Selects rows of a batch by its columns, without its bodies. One of the two `expressions`, by tags and by SQL, is
empty. `compile_filter` makes an equal filter from them."""


def compile_filter(tag_expression: str, sql_expression: str, path: str = "") -> MessageFilter | None:
    """The filter of a request; None = everything. Errors: Invalid, which names the field below `path`."""
    prefix = f"{path}." if path else ""
    if sql_expression:
        if tag_expression.strip() not in ("", "*"):
            raise Invalid(
                "the tag expression is set too; give only one, and use TAGS for the tag in SQL",
                field=f"{prefix}sql_expression",
            )
        return SqlFilter.compile(sql_expression, f"{prefix}sql_expression")
    tags = _tags(tag_expression, f"{prefix}tag_expression")
    return None if tags is None else TagFilter(tags)


def _tags(expression: str, field: str) -> frozenset[str] | None:
    """Read an expression, which is "", "*", or tags separated by "||". None = all. Errors: Invalid, naming `field`."""
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise Invalid(f"{len(expression)} characters; at most {EXPRESSION_LENGTH_MAX} are allowed", field=field)
    if not expression.strip():
        return None
    tags = [tag for part in expression.split(SEPARATOR) if (tag := part.strip())]
    if not tags:
        raise Invalid(f"{expression!r} names no tag; write '*' for all, or tags such as 'a || b'", field=field)
    if EVERYTHING in tags:
        return None
    for tag in tags:
        text_rules.TAG.check(tag, field)
    return frozenset(tags)

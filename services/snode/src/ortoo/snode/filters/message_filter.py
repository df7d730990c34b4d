"""Which messages of a topic a reader wants: by tag or by an SQL condition."""

from typing import Protocol

from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.snode.filters.sql_filter import SqlFilter
from ortoo.snode.filters.tags import TagFilter


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

"""What a reader wants of a queue, as it travels to where the log lies; applied there, the rest need not travel."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ortoo.common.filters.message_filter import MessageFilter, compile_filter
from ortoo.common.filters.projection import Columns, projected
from ortoo.common.filters.selection import selected
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.stored_batch import StoredBatch


class ChosenPart(NamedTuple):
    """What is wanted of one stored batch; `rows` as in `Selected`."""

    first_offset: int
    next_offset: int
    stored_at_ms: int
    batch: SealedBatch
    rows: bytes


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The messages that match, up to an offset, and of these some columns."""

    tag_expression: str = ""
    sql_expression: str = ""
    columns: Columns = frozenset()
    """Empty = all."""
    to_offset: int = 0
    """Exclusive; 0 = no end."""

    @classmethod
    def of(cls, wanted: MessageFilter | None, columns: Columns, to_offset: int) -> "Pushdown | None":
        """What has to travel of a reader's wishes; None when it wants everything."""
        if wanted is None and not columns:
            return None
        tags, sql = ("", "") if wanted is None else wanted.expressions
        return cls(tags, sql, columns, to_offset)

    def compiled(self) -> MessageFilter | None:
        """The filter; None = everything. Errors: Invalid."""
        return compile_filter(self.tag_expression, self.sql_expression, "pushdown")

    def chosen(self, stored: Iterable[StoredBatch], from_offset: int, wanted: MessageFilter | None) -> list[ChosenPart]:
        """What is wanted of some batches; those without anything are left out. Errors: Invalid, Unsupported."""
        parts = []
        for one in stored:
            part = selected(one, from_offset, self.to_offset or None, wanted, columns=self.columns)
            if part.batch is not None:
                batch = projected(part.batch, self.columns)
                parts.append(ChosenPart(part.first_offset, part.next_offset, part.stored_at_ms, batch, part.rows))
        return parts

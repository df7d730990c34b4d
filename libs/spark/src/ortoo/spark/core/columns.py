"""The columns that a topic has as a table. Schemas, projections and documents are made from this list.

The list has the place of a message, its body, and the columns of a record batch. Columns about the encoding of a body
are left out, because bodies are decoded: `body` is always what the application sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import MESSAGE_COLUMNS, MESSAGE_ID, Layout, MessageColumn, Presence
from ortoo.spark.core.options import suggestion


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a topic: its name, its type in Spark's DDL, and its meaning."""

    name: str
    ddl: str
    description: str
    field: MessageColumn[Any] | None = None
    """The column of the record batch; None for the body and the place of a message."""

    @property
    def is_default(self) -> bool:
        """Whether a read without the option `columns` has this column.

        A column such as the delivery time is read only on request: within a batch, either all rows have it or no row
        has it.
        """
        return self.field is None or self.field.presence is not Presence.ALL_OR_NONE

    @property
    def is_required(self) -> bool:
        """Whether every row has it: the place and the body. Spark reads such a column without looking for nulls."""
        return self.field is None


TYPES: Final[dict[Layout, tuple[str, ...]]] = {
    Layout.INT8: ("tinyint", "int", "bigint", "smallint"),
    Layout.INT32: ("int", "bigint", "smallint", "tinyint"),
    Layout.TIMES: ("timestamp", "timestamp_ntz"),
    Layout.TEXTS: ("string",),
    Layout.DICTIONARY: ("string",),
    Layout.LISTS: ("array<string>", "string"),
    Layout.MAPS: ("map<string,string>",),
}
"""Layout to types: the first is the type of a column that is read, and sinks accept all of them."""


def _table_column(field: MessageColumn[Any]) -> TableColumn:
    # Spark has a type for times, so that their names need no unit.
    name = field.name.removesuffix("_ms") if field.layout is Layout.TIMES else field.name
    absent = "null" if field.default is None else "0" if field.layout.is_number else "empty"
    otherwise = f"; {absent} if the message has none"
    if field is MESSAGE_ID:
        otherwise = ", or the one made of topic id, queue and offset"
    elif field.presence is Presence.ALWAYS:
        otherwise = ""
    return TableColumn(name, TYPES[field.layout][0], field.meaning + otherwise, field)


MESSAGE_TABLE: Final = tuple(_table_column(field) for field in MESSAGE_COLUMNS if not field.is_about_body)
"""The columns of a record batch."""
COLUMNS: Final = (
    TableColumn("topic", "string", "the topic's name"),
    TableColumn("enode", "string", "the enode that stores the queue"),
    TableColumn("queue_id", "int", "the queue's number on that enode"),
    TableColumn("offset", "bigint", "the message's number in its queue"),
    TableColumn("body", "binary", "the content"),
    TableColumn("stored_at", "timestamp", "when the message was stored, to the millisecond"),
    *MESSAGE_TABLE,
)
"""Every column of a topic, in display order."""
BY_NAME: Final = {column.name: column for column in COLUMNS}
REQUIRED: Final = " NOT NULL"
"""The end of the DDL of a column that is never null."""


def chosen_names(columns: Sequence[str]) -> tuple[str, ...]:
    """The names in `columns`, or else the default columns. Errors: Invalid for an unknown or repeated name."""
    if not columns:
        return tuple(column.name for column in COLUMNS if column.is_default)
    for at, name in enumerate(columns):
        if name in columns[:at]:
            raise Invalid(f"{name} is given twice; expected each column once", field="columns")
        if name not in BY_NAME:
            raise Invalid(f"there is no column {name!r}{suggestion(name, BY_NAME)}", field="columns")
    return tuple(columns)


def ddl(names: Sequence[str]) -> str:
    """The schema of the columns `names` in Spark's DDL."""
    return ", ".join(f"`{name}` {BY_NAME[name].ddl}{REQUIRED * BY_NAME[name].is_required}" for name in names)

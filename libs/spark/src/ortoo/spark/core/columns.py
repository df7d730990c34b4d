"""The columns of a topic as a table; schemas, projections and documents are derived from this list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ortoo.common.errors import Invalid
from ortoo.spark.core.options import suggestion


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """One column: its name, its type in Spark's DDL, and its meaning."""

    name: str
    ddl: str
    description: str
    is_default: bool = True
    """Whether it is included by default."""


COLUMNS: Final = (
    MessageColumn("topic", "string", "the topic's name"),
    MessageColumn("enode", "string", "the enode that stores the queue"),
    MessageColumn("queue_id", "int", "the queue's number on that enode"),
    MessageColumn("offset", "bigint", "the message's number in its queue"),
    MessageColumn("message_id", "string", "the producer's id for it, or the one made of topic id, queue and offset"),
    MessageColumn("tag", "string", "for filters; null if it has none"),
    MessageColumn("keys", "array<string>", "for search; empty if it has none"),
    MessageColumn("body", "binary", "the content"),
    MessageColumn("stored_at", "timestamp", "when it was stored, to the millisecond"),
    MessageColumn("born_at", "timestamp", "when its producer made it, to the millisecond"),
    MessageColumn("born_host", "string", "the producer's host; null if it is unknown"),
    MessageColumn("message_group", "string", "messages of one group are in one queue, in order; null if it has none"),
    MessageColumn("properties", "map<string,string>", "the user's properties; empty if it has none"),
    MessageColumn("trace_context", "string", "W3C trace context; null if it has none"),
    MessageColumn("priority", "int", "larger is more urgent; null if it has none", is_default=False),
    MessageColumn(
        "deliver_at", "timestamp", "not visible before this time; null if it was not delayed", is_default=False
    ),
)
"""Every column of a message, in display order."""
BY_NAME: Final = {column.name: column for column in COLUMNS}


def chosen_names(columns: Sequence[str]) -> tuple[str, ...]:
    """The requested columns, or the default ones. Errors: Invalid for an unknown or repeated name."""
    if not columns:
        return tuple(column.name for column in COLUMNS if column.is_default)
    for at, name in enumerate(columns):
        if name in columns[:at]:
            raise Invalid(f"{name} is given twice; expected each column once", field="columns")
        if name not in BY_NAME:
            raise Invalid(f"there is no column {name!r}{suggestion(name, BY_NAME)}", field="columns")
    return tuple(columns)


def ddl(names: Sequence[str]) -> str:
    """The schema of these columns in Spark's DDL."""
    return ", ".join(f"`{name}` {BY_NAME[name].ddl}" for name in names)

"""The fields of a message that are columns, made from the table of columns.

`make docs` writes the stub with their types.

`RareFields` are the fields that few messages have. They are stored separately, so that other messages do not pay for
them.
"""

from collections import namedtuple
from operator import attrgetter
from typing import Any, Final

from ortoo.common.records.columns import RARE_COLUMNS, MessageColumn, Presence

RareFields: Any = namedtuple(
    "RareFields", [column.name for column in RARE_COLUMNS], defaults=[column.default for column in RARE_COLUMNS]
)
"""The values of `RARE_COLUMNS` in one message."""
# An error about an unknown argument names the class that the application calls.
RareFields.__new__.__qualname__ = "Message"
NO_RARE_FIELDS: Final = RareFields()
"""The rare fields of a message that has only body, tag and keys."""
RareArguments = dict[str, Any]
"""Some rare fields by name, as keyword arguments."""


class ColumnFields:
    """The rare fields of a message as attributes; a base class of messages that have `rare`."""

    __slots__ = ()
    rare: Any


def rare_fields(**given: Any) -> Any:
    """Rare fields with these values; the object `NO_RARE_FIELDS` if all values are the defaults."""
    made = RareFields(**given)
    return NO_RARE_FIELDS if made == NO_RARE_FIELDS else made


def exclusive_columns(rare: Any) -> int:
    """A bit for each column that a batch has in all rows or in none; 1 = the message has a value.

    Messages with different bits cannot share a batch.
    """
    if rare is NO_RARE_FIELDS:
        return 0
    bits = 0
    for bit, place in _EXCLUSIVE:
        if rare[place] is not None:
            bits |= bit
    return bits


def _attribute(column: MessageColumn[Any]) -> property:
    text = f"{column.meaning[0].upper()}{column.meaning[1:]}; {column.default!r} if it has none."
    return property(attrgetter(f"rare.{column.name}"), doc=text)


for _column in RARE_COLUMNS:
    setattr(ColumnFields, _column.name, _attribute(_column))
_EXCLUSIVE: Final = tuple(
    (1 << number, place)
    for number, place in enumerate(
        place for place, column in enumerate(RARE_COLUMNS) if column.presence is Presence.ALL_OR_NONE
    )
)
"""The bit and the place of each of these columns."""

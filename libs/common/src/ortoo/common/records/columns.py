"""The columns of a record batch. The table `COLUMNS` is the only place that defines them.

Writers, readers, arrays, `Message`, Spark's schemas, the command's output and the documents are made from `COLUMNS`. A
new column of messages is one entry of `COLUMNS`, with the rule for its texts, and one field of `RecordBatch` in
record.proto. `make docs` writes the column's types and its rows in the documents. Code that uses a certain column, such
as the expiry time, uses a constant of this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from ortoo.common.records.text_rules import PROPERTY_VALUE, TEXT_BYTES_MAX, TextRule
from ortoo.common.records.text_rules import TAG as TAG_RULE

FORMAT: Final = 1
"""The version of the layout that this code writes and reads."""
KNOWN_FEATURES: Final = 0
"""The bits of `required_features` that this code understands."""
NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
"""The value of a column of maps in a message that has none."""

Value = TypeVar("Value")
"""The value of a column in one message."""
Entry = TypeVar("Entry")


class Layout(StrEnum):
    """How the values of a column are stored, in the terms of docs/formats/record-batch.md."""

    INT8 = "int8 x count"
    INT32 = "int32 x count"
    TIMES = "int64 x count"
    """Milliseconds since 1970-01-01 UTC."""
    TEXTS = "utf8"
    DICTIONARY = "dictionary<int32, utf8>"
    LISTS = "list<utf8>"
    MAPS = "map<dictionary<int32, utf8>, utf8>"

    @property
    def is_number(self) -> bool:
        """Whether each row is a number of fixed width."""
        return self in _LARGEST


class Presence(StrEnum):
    """The condition under which a batch has a column."""

    ALWAYS = "always"
    """A message without a value gets the time of encoding."""
    ALL_OR_NONE = "all rows or none"
    """Messages with and without a value never share a batch."""
    IF_USED = "if a row has one"
    """In a column of numbers 0 stands for none."""
    IF_NOT_ZERO = "if a row is not 0"


ROW_BYTES: Final = {
    **dict.fromkeys(Layout, 4),
    Layout.INT8: 1,
    Layout.TIMES: 8,
    Layout.DICTIONARY: 8,  # a code, and the offset of its text
}
"""Maximum size of a row in a column besides its texts."""
_LARGEST: Final = {Layout.INT8: (1 << 7) - 1, Layout.INT32: (1 << 31) - 1, Layout.TIMES: (1 << 63) - 1}


@dataclass(frozen=True)
class Column:
    """One field of the batch: its number and name in the proto, its layout, and when it is present."""

    number: int
    name: str
    layout: str
    presence: str


@dataclass(frozen=True)
class MessageColumn(Column, Generic[Value]):
    """A column with one value for each message."""

    layout: Layout
    presence: Presence
    meaning: str
    """A part of a sentence, for documents and `Message`."""
    rule: TextRule | None = None
    """The rule for its texts; in a column of maps, for the values of entries."""
    number_max: int | None = None
    """The largest number; None = the largest one that fits the layout."""
    is_common: bool = False
    """Whether many messages have it, so that `Message` stores it beside the body."""
    is_about_body: bool = False
    """Whether it tells how to read the body. Readers that decode bodies apply it instead of returning it."""

    def __post_init__(self) -> None:
        assert self.layout.is_number == (self.rule is None), (
            "columns of texts have a rule, columns of numbers have none"
        )

    @cached_property
    def is_optional_number(self) -> bool:
        """Whether the rows are numbers, where 0 means that the message has no value."""
        return self.rule is None and self.presence is Presence.IF_USED

    @cached_property
    def default(self) -> Any:
        """The value of a message that has no value in this column."""
        if self.presence is Presence.IF_NOT_ZERO:
            return 0
        return {Layout.LISTS: (), Layout.MAPS: NO_PROPERTIES}.get(self.layout)

    @cached_property
    def value_type(self) -> Any:
        """The Python type of a value, for annotations."""
        if self.layout.is_number:
            return int if self.default == 0 else int | None
        return {Layout.LISTS: tuple[str, ...], Layout.MAPS: Mapping[str, str]}.get(self.layout, str | None)

    @cached_property
    def least(self) -> int:
        """The smallest valid number."""
        return 1 if self.presence is Presence.IF_USED else 0

    @cached_property
    def largest(self) -> int:
        """The largest valid number."""
        return _LARGEST[self.layout] if self.number_max is None else self.number_max

    @cached_property
    def shares_text_limit(self) -> bool:
        """Whether the column's texts count towards the common limit on the size of a message's texts."""
        return self.rule is not None and self.rule.bytes_max >= TEXT_BYTES_MAX


BORN_AT: Final = MessageColumn[int | None](
    8, "born_at_ms", Layout.TIMES, Presence.ALWAYS, "when its producer made it, to the millisecond"
)
TAG: Final = MessageColumn[str | None](
    9, "tag", Layout.DICTIONARY, Presence.IF_USED, "a label for filters", TAG_RULE, is_common=True
)
KEYS: Final = MessageColumn[tuple[str, ...]](
    10, "keys", Layout.LISTS, Presence.IF_USED, "words for search", TextRule("key"), is_common=True
)
MESSAGE_GROUP: Final = MessageColumn[str | None](
    11,
    "message_group",
    Layout.DICTIONARY,
    Presence.IF_USED,
    "messages of one group are in one queue, in order",
    TextRule("message group", bytes_max=63),
)
PROPERTIES: Final = MessageColumn[Mapping[str, str]](
    12,
    "properties",
    Layout.MAPS,
    Presence.IF_USED,
    "the application's properties",
    PROPERTY_VALUE,
)
DELIVER_AT: Final = MessageColumn[int | None](
    13, "deliver_at_ms", Layout.TIMES, Presence.ALL_OR_NONE, "not visible before this time"
)
PRIORITY: Final = MessageColumn[int | None](14, "priority", Layout.INT32, Presence.ALL_OR_NONE, "larger is more urgent")
BODY_ENCODING: Final = MessageColumn[int](
    15,
    "body_encoding",
    Layout.INT8,
    Presence.IF_NOT_ZERO,
    "how the producer encoded the body: 0 as it is, 1 gzip",
    number_max=1,
    is_about_body=True,
)
BORN_HOST: Final = MessageColumn[str | None](
    16,
    "born_host",
    Layout.DICTIONARY,
    Presence.IF_USED,
    "the producer's host",
    TextRule("born host", bytes_max=255, empty_allowed=True, blank_allowed=True),
)
MESSAGE_ID: Final = MessageColumn[str | None](
    17,
    "message_id",
    Layout.TEXTS,
    Presence.IF_USED,
    "the id that its producer chose",
    TextRule("message id", bytes_max=255),
)
TRACE_CONTEXT: Final = MessageColumn[str | None](
    18,
    "trace_context",
    Layout.TEXTS,
    Presence.IF_USED,
    "W3C trace context",
    TextRule("trace context", bytes_max=1024, empty_allowed=True, blank_allowed=True),
)
EXPIRE_AT: Final = MessageColumn[int | None](
    19, "expire_at_ms", Layout.TIMES, Presence.IF_USED, "from this time on no group gets the message"
)

COLUMNS: Final[tuple[Column, ...]] = (
    Column(1, "format", "uint32", "always"),
    Column(2, "required_features", "uint64 bits", "if not 0"),
    Column(3, "count", "uint32", "always"),
    Column(4, "codec", "enum", "always"),
    Column(5, "body_inflated_bytes", "uint32", "always"),
    Column(6, "body_offsets", "int32 x (count + 1)", "always"),
    Column(7, "body", "bytes, one block", "always"),
    BORN_AT,
    TAG,
    KEYS,
    MESSAGE_GROUP,
    PROPERTIES,
    DELIVER_AT,
    PRIORITY,
    BODY_ENCODING,
    BORN_HOST,
    MESSAGE_ID,
    TRACE_CONTEXT,
    EXPIRE_AT,
    Column(20, "preceding_digest", "uint64", "if an idempotent sink sent batches before"),
)
"""Every field of a record batch, in the order of the numbers."""

NUMBERS: Final = {column.name: column.number for column in COLUMNS}
"""Field name -> field number."""
MESSAGE_COLUMNS: Final = tuple(column for column in COLUMNS if isinstance(column, MessageColumn))
"""The columns with one value for each message; they follow the body."""
RARE_COLUMNS: Final = tuple(column for column in MESSAGE_COLUMNS if not column.is_common)
"""The columns that few messages use."""


def by_column(of_layout: Mapping[Layout, Entry]) -> dict[int, Entry]:
    """Map each column's number to the entry of its layout, because a lookup by number is faster than by layout."""
    return {column.number: of_layout[column.layout] for column in MESSAGE_COLUMNS}

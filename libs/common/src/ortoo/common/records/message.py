"""One message as applications see it, and the limits of its fields.

    Message(b"hello")
    Message(b"hello", "greeting", ("order-17",), properties={"lang": "mn"})
    message.check()        # raises Invalid, naming the field

The constructor checks nothing, so that it is cheap; limits are checked in bulk when messages are encoded.
"""

import inspect
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import FrozenInstanceError
from typing import Any, Final, Self, Unpack

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import KEYS, RARE_COLUMNS, TAG, Layout, MessageColumn
from ortoo.common.records.message_fields import NO_RARE_FIELDS, ColumnFields, RareArguments, RareFields, rare_fields
from ortoo.common.records.text_rules import PRODUCER_LIMITS, MessageLimits, TextRule, without_system_properties

BODY_BYTES_MAX: Final = 4 << 20
"""Maximum size of a body."""
BODY_AS_IS: Final = 0
"""`body_encoding`: the body is the application's, unchanged."""
BODY_GZIP: Final = 1
"""`body_encoding`: the producer compressed this single body; servers never decompress it."""


class Message(ColumnFields):
    """An immutable message with a body of 1 byte to 4 MiB; all other fields may be absent.

    `keys` is a tuple or a list of texts for search; `properties` must not be changed once given. Times are
    milliseconds since 1970-01-01 UTC. If `born_at_ms` is None, the message gets the time at which it is encoded. The
    keyword arguments are the fields that few messages have.
    """

    __slots__ = ("body", "keys", "rare", "tag")
    __match_args__ = ("body", "tag", "keys")

    body: bytes
    tag: str | None
    keys: Sequence[str]
    rare: RareFields

    def __init__(
        self,
        body: bytes,
        tag: str | None = None,
        keys: Sequence[str] = (),
        **rare: Unpack[RareArguments],
    ) -> None:
        """Take the fields unchanged and unchecked."""
        set_body(self, body)
        set_tag(self, tag)
        set_keys(self, keys)
        set_rare(self, rare_fields(**rare) if rare else NO_RARE_FIELDS)

    @classmethod
    def of(cls, body: bytes, tag: str | None, keys: Sequence[str], rare: RareFields) -> Self:
        """Make a message from its parts; faster than the constructor with keywords."""
        self = cls.__new__(cls)
        set_body(self, body)
        set_tag(self, tag)
        set_keys(self, keys)
        set_rare(self, rare)
        return self

    def replace(self, **changes: object) -> "Message":
        """Return a copy with the named fields changed. Errors: TypeError for an unknown field."""
        fields = {"body": self.body, "tag": self.tag, "keys": self.keys, **self.rare._asdict()}
        fields.update(changes)
        return Message(**fields)

    def without_system_properties(self, kept: Collection[str] = ()) -> "Message":
        """Return the message without the properties that only servers write, so that a client may send it again.

        Those of the names in `kept` stay.
        """
        left = without_system_properties(self.rare.properties, kept)
        if left is self.rare.properties:
            return self
        return Message.of(self.body, self.tag, self.keys, self.rare._replace(properties=left))

    def check(self, field: str = "message") -> None:
        """Raise Invalid, naming the field below `field`, if the message breaks a limit."""
        check_parts(self.body, self.tag, self.keys, self.rare, field)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"a message cannot be changed; make a changed copy by replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError("a message cannot be changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.body, self.tag, tuple(self.keys), self.rare) == (
            other.body,
            other.tag,
            tuple(other.keys),
            other.rare,
        )

    def __hash__(self) -> int:
        return hash((self.body, self.tag, tuple(self.keys)))

    def __repr__(self) -> str:
        shown = repr(self.body) if len(self.body) <= 64 else f"<{len(self.body)} bytes {self.body[:32]!r}...>"
        parts = [shown]
        if self.tag is not None:
            parts.append(f"tag={self.tag!r}")
        if self.keys:
            parts.append(f"keys={self.keys!r}")
        parts += [
            f"{name}={value!r}"
            for name, value in self.rare._asdict().items()
            if value is not None and value != getattr(NO_RARE_FIELDS, name)
        ]
        return f"Message({', '.join(parts)})"

    def __reduce__(self) -> tuple[object, ...]:
        # A read-only view cannot be pickled.
        rare = RareFields._make([dict(value) if isinstance(value, Mapping) else value for value in self.rare])
        return (Message.of, (self.body, self.tag, self.keys, rare))


# The class forbids assignment. Code that makes messages (here, and in bulk the batch view) sets the slots directly,
# which is also the fastest way.
_Setter = Callable[[Message, Any], None]
set_body: _Setter = Message.__dict__["body"].__set__
set_tag: _Setter = Message.__dict__["tag"].__set__
set_keys: _Setter = Message.__dict__["keys"].__set__
set_rare: _Setter = Message.__dict__["rare"].__set__


def check_parts(
    body: bytes,
    tag: str | None,
    keys: Sequence[str],
    rare: RareFields,
    field: str,
    limits: MessageLimits = PRODUCER_LIMITS,
) -> None:
    """Raise Invalid, naming the field below `field`, if a message of these parts would break a limit."""
    check_body(body, f"{field}.body")
    shared: list[str] = []
    for (column, default), value in zip(_CHECKED, (tag, keys, *rare), strict=True):
        if value is default:
            continue
        if column.rule is None:
            if not (isinstance(value, int) and column.least <= value <= column.largest):
                wanted = f"a whole number from {column.least} to {column.largest}"
                raise Invalid(f"{value!r} is not {wanted}", field=f"{field}.{column.name}")
            continue
        texts = _checked_texts(column, value, field, limits)
        if column.shares_text_limit:
            shared += texts
    size = len("".join(shared).encode())
    if size > limits.text_bytes:
        raise Invalid(
            f"tag, keys and properties have {size} bytes together; at most {limits.text_bytes} fit, so put large "
            "values into the body",
            field=f"{field}.properties" if rare.properties else f"{field}.keys",
        )


def _checked_texts(column: MessageColumn[Any], value: Any, field: str, limits: MessageLimits) -> Sequence[str]:
    """Check the texts of a value, and return them. Errors: Invalid, naming the field below `field`."""
    layout, rule = column.layout, column.rule
    assert rule is not None, "a column of texts has a rule"
    if layout is not Layout.LISTS and layout is not Layout.MAPS:
        if not rule.quickly_holds(value):
            rule.check(value, f"{field}.{column.name}")
        return (value,)
    path = f"{field}.{column.name}"
    if layout is Layout.MAPS:
        check_map(value, rule, path, limits)
        return (*value, *value.values())
    rule.check_list(value, path)
    texts: Sequence[str] = value
    for at, text in enumerate(texts):
        if not rule.quickly_holds(text):
            rule.check(text, f"{path}[{at}]")
    return texts


def check_body(body: object, field: str) -> None:
    """Raise Invalid unless `body` is bytes of an allowed size."""
    if not isinstance(body, bytes):
        raise Invalid(f"the body is a {type(body).__name__}; give bytes (text: text.encode())", field=field)
    if not body:
        raise Invalid("the body is empty; a message needs at least 1 byte", field=field)
    if len(body) > BODY_BYTES_MAX:
        raise Invalid(f"the body has {len(body)} bytes; at most {BODY_BYTES_MAX} fit", field=field)


def check_map(entries: object, rule: TextRule, field: str, limits: MessageLimits = PRODUCER_LIMITS) -> None:
    """Raise Invalid if the number of entries, a name or a value breaks a limit."""
    if type(entries) is not dict and not isinstance(entries, Mapping):
        raise Invalid(f"properties are a {type(entries).__name__}; give a dict of texts", field=field)
    if len(entries) > limits.properties:
        raise Invalid(f"{len(entries)} properties; a message may have at most {limits.properties}", field=field)
    name_rule = limits.property_name
    for name, value in entries.items():
        if not name_rule.quickly_holds(name):
            name_rule.check(name, f"{field}[{name!r}]")
        if not rule.quickly_holds(value):
            rule.check(value, f"{field}[{name!r}]")


def message_of(given: object) -> Message:
    """The argument of a send as a message. Errors: Invalid if it is neither a message nor bytes."""
    if isinstance(given, Message):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return Message(bytes(given))
    hint = "; encode it, as by .encode()" if isinstance(given, str) else ""
    kind = type(given).__name__
    raise Invalid(f"expected bytes or a Message, got {kind} {reprlib.repr(given)}{hint}", field="message")


def alike(given: "list[Message | bytes]") -> "list[Message | bytes]":
    """The arguments of a send: unchanged if all are messages or all are bytes, else as messages. Errors: Invalid."""
    kinds = set(map(type, given))
    return given if kinds <= {bytes} or kinds <= {Message} else list(map(message_of, given))


_COLUMNS: Sequence[MessageColumn[Any]] = (TAG, KEYS, *RARE_COLUMNS)
_CHECKED = [(column, column.default) for column in _COLUMNS]
_POSITIONAL = [one for one in inspect.signature(Message).parameters.values() if one.kind is not one.VAR_KEYWORD]
_KEYWORDS = [
    inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.value_type)
    for one in RARE_COLUMNS
]
Message.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [*_POSITIONAL, *_KEYWORDS], return_annotation=None
)

"""One message as applications see it, and the limits of its fields.

    Message(b"hello")
    Message(b"hello", "greeting", ("order-17",), properties={"lang": "mn"})
    message.check()        # raises Invalid, naming the field

The constructor checks nothing, so that it is cheap; limits are checked in bulk when messages are encoded.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from ortoo.common.errors import Invalid
from ortoo.common.records import text_rules
from ortoo.common.records.text_rules import PRODUCER_LIMITS, MessageLimits, without_system_properties

BODY_BYTES_MAX: Final = 4 << 20
"""Maximum size of a body."""
BODY_AS_IS: Final = 0
"""`body_encoding`: the body is the application's, unchanged."""
BODY_GZIP: Final = 1
"""`body_encoding`: the producer compressed this single body; servers never decompress it."""
TIME_MS_MAX: Final = (1 << 63) - 1
"""The largest time that a column of times can hold."""
PRIORITY_MAX: Final = (1 << 31) - 1
"""The largest priority."""


NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
"""The value of `Message.properties` when there are none."""


class RareFields(NamedTuple):
    """Fields that few messages have, kept apart so that they cost the others nothing."""

    message_group: str | None = None
    properties: Mapping[str, str] = NO_PROPERTIES
    message_id: str | None = None
    born_at_ms: int | None = None
    deliver_at_ms: int | None = None
    priority: int | None = None
    body_encoding: int = BODY_AS_IS
    born_host: str | None = None
    trace_context: str | None = None
    expire_at_ms: int | None = None


NO_RARE_FIELDS: Final = RareFields()
"""The rare fields of a message that has only body, tag and keys."""


class Message:
    """An immutable message with a body of 1 byte to 4 MiB; all other fields may be absent.

    `keys` is a tuple (a list does as well) of texts for search; `properties` must not be changed once given.
    Times are milliseconds since 1970-01-01 UTC. A `born_at_ms` of None is stamped when the message is encoded.
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
        *,
        message_group: str | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        message_id: str | None = None,
        born_at_ms: int | None = None,
        deliver_at_ms: int | None = None,
        priority: int | None = None,
        body_encoding: int = BODY_AS_IS,
        born_host: str | None = None,
        trace_context: str | None = None,
        expire_at_ms: int | None = None,
    ) -> None:
        """Take the fields unchanged and unchecked."""
        set_body(self, body)
        set_tag(self, tag)
        set_keys(self, keys)
        if (
            message_group is None
            and properties is NO_PROPERTIES
            and message_id is None
            and born_at_ms is None
            and deliver_at_ms is None
            and priority is None
            and body_encoding == BODY_AS_IS
            and born_host is None
            and trace_context is None
            and expire_at_ms is None
        ):
            set_rare(self, NO_RARE_FIELDS)
            return
        set_rare(
            self,
            RareFields(
                message_group,
                properties,
                message_id,
                born_at_ms,
                deliver_at_ms,
                priority,
                body_encoding,
                born_host,
                trace_context,
                expire_at_ms,
            ),
        )

    @classmethod
    def of(cls, body: bytes, tag: str | None, keys: Sequence[str], rare: RareFields) -> Self:
        """Make a message of its parts, faster than by keywords."""
        self = cls.__new__(cls)
        set_body(self, body)
        set_tag(self, tag)
        set_keys(self, keys)
        set_rare(self, rare)
        return self

    def replace(self, **changes: object) -> "Message":
        """Return a copy with the named fields changed; an unknown field is a TypeError."""
        fields = {"body": self.body, "tag": self.tag, "keys": self.keys, **self.rare._asdict()}
        fields.update(changes)
        return Message(**fields)

    def without_system_properties(self) -> "Message":
        """Return the message without the properties that only servers write, so that a client may send it again."""
        kept = without_system_properties(self.rare.properties)
        if kept is self.rare.properties:
            return self
        return Message.of(self.body, self.tag, self.keys, self.rare._replace(properties=kept))

    @property
    def message_group(self) -> str | None:
        """Messages of one group go to one queue and are delivered one after another."""
        return self.rare.message_group

    @property
    def properties(self) -> Mapping[str, str]:
        """The user's properties, name to value."""
        return self.rare.properties

    @property
    def message_id(self) -> str | None:
        """The id the producer chose; None = the server makes one of topic id, queue and offset."""
        return self.rare.message_id

    @property
    def born_at_ms(self) -> int | None:
        """The time at which the message was made, milliseconds since 1970-01-01 UTC."""
        return self.rare.born_at_ms

    @property
    def deliver_at_ms(self) -> int | None:
        """The message is not visible before this time; None = at once."""
        return self.rare.deliver_at_ms

    @property
    def priority(self) -> int | None:
        """0 or more; larger is more urgent."""
        return self.rare.priority

    @property
    def body_encoding(self) -> int:
        """BODY_AS_IS or BODY_GZIP."""
        return self.rare.body_encoding

    @property
    def born_host(self) -> str | None:
        """The producer's host, as text."""
        return self.rare.born_host

    @property
    def trace_context(self) -> str | None:
        """W3C trace context."""
        return self.rare.trace_context

    @property
    def expire_at_ms(self) -> int | None:
        """From this time on no group gets the message any more; None = it never expires."""
        return self.rare.expire_at_ms

    def check(self, field: str = "message") -> None:
        """Raise Invalid, naming the field below `field`, unless the message keeps every limit."""
        check_parts(self.body, self.tag, self.keys, self.rare, field)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"a message does not change; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError("a message does not change")

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
        return hash((self.body, self.tag, tuple(self.keys), self.rare.message_id))

    def __repr__(self) -> str:
        shown = repr(self.body) if len(self.body) <= 64 else f"<{len(self.body)} bytes {self.body[:32]!r}...>"
        parts = [shown]
        if self.tag is not None:
            parts.append(f"tag={self.tag!r}")
        if self.keys:
            parts.append(f"keys={tuple(self.keys)!r}")
        parts += [
            f"{name}={value!r}"
            for name, value in self.rare._asdict().items()
            if value is not None and value != getattr(NO_RARE_FIELDS, name)
        ]
        return f"Message({', '.join(parts)})"

    def __reduce__(self) -> tuple[object, ...]:
        properties = dict(self.rare.properties)  # a read-only view cannot be pickled
        return (Message.of, (self.body, self.tag, self.keys, self.rare._replace(properties=properties)))


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
    """Raise Invalid, naming the field below `field`, unless these parts make a message that keeps every limit."""
    check_body(body, f"{field}.body")
    if tag is not None and not text_rules.TAG.quickly_holds(tag):
        text_rules.TAG.check(tag, f"{field}.tag")
    if not isinstance(keys, tuple | list):
        raise Invalid(f"keys are a {type(keys).__name__}; give a tuple of texts, such as ('a',)", field=f"{field}.keys")
    for at, key in enumerate(keys):
        if not text_rules.KEY.quickly_holds(key):
            text_rules.KEY.check(key, f"{field}.keys[{at}]")
    check_properties(rare.properties, f"{field}.properties", limits)
    size = len("".join((tag or "", *keys, *rare.properties, *rare.properties.values())).encode())
    if size > limits.text_bytes:
        raise Invalid(
            f"tag, keys and properties have {size} bytes together; at most {limits.text_bytes} fit, so put large "
            "values into the body",
            field=f"{field}.properties" if rare.properties else f"{field}.keys",
        )
    for name, rule in _RARE_TEXTS:
        text = getattr(rare, name)
        if text is not None and not rule.quickly_holds(text):
            rule.check(text, f"{field}.{name}")
    for name, least, largest in _RARE_NUMBERS:
        number = getattr(rare, name)
        if number is not None and not (isinstance(number, int) and least <= number <= largest):
            words = f"{number!r} is not a whole number from {least} to {largest}"
            raise Invalid(words, field=f"{field}.{name}")


_RARE_TEXTS = (
    ("message_group", text_rules.MESSAGE_GROUP),
    ("message_id", text_rules.MESSAGE_ID),
    ("born_host", text_rules.BORN_HOST),
    ("trace_context", text_rules.TRACE_CONTEXT),
)
_RARE_NUMBERS = (
    ("born_at_ms", 0, TIME_MS_MAX),
    ("deliver_at_ms", 0, TIME_MS_MAX),
    ("priority", 0, PRIORITY_MAX),
    ("body_encoding", 0, BODY_GZIP),
    ("expire_at_ms", 1, TIME_MS_MAX),
)


def check_body(body: object, field: str) -> None:
    """Raise Invalid unless `body` is bytes of an allowed size."""
    if not isinstance(body, bytes):
        raise Invalid(f"the body is a {type(body).__name__}; give bytes (text: text.encode())", field=field)
    if not body:
        raise Invalid("the body is empty; a message needs at least 1 byte", field=field)
    if len(body) > BODY_BYTES_MAX:
        raise Invalid(f"the body has {len(body)} bytes; at most {BODY_BYTES_MAX} fit", field=field)


def check_properties(properties: object, field: str, limits: MessageLimits = PRODUCER_LIMITS) -> None:
    """Raise Invalid unless the number of `properties`, their names and their values keep the limits."""
    if not isinstance(properties, Mapping):
        raise Invalid(f"properties are a {type(properties).__name__}; give a dict of texts", field=field)
    if len(properties) > limits.properties:
        raise Invalid(f"{len(properties)} properties; a message may have {limits.properties}", field=field)
    name_rule = limits.property_name
    for name, value in properties.items():
        if not name_rule.quickly_holds(name):
            name_rule.check(name, f"{field}[{name!r}]")
        if not text_rules.PROPERTY_VALUE.quickly_holds(value):
            text_rules.PROPERTY_VALUE.check(value, f"{field}[{name!r}]")


def message_of(given: object) -> Message:
    """The argument of a send as a message. Errors: Invalid if it is neither a message nor bytes."""
    if isinstance(given, Message):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return Message(bytes(given))
    hint = "; encode it, as by .encode()" if isinstance(given, str) else ""
    kind = type(given).__name__
    raise Invalid(f"expected bytes or a Message, got {kind} {reprlib.repr(given)}{hint}", field="message")

"""The rules for the texts of a message, for the producer's checks and the server's.

`COLUMNS` has the rule of each column. This module has the rules that are also used elsewhere.

The rules are RocketMQ's, because messages of either protocol must be readable through the other one. "Blank" means
made only of spaces (U+0020); control characters are U+0000-001F and U+007F-009F. Limits count UTF-8 bytes.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.common.records.sealed_batch import COPY_RECORD_BYTES_MAX, SINGLE_RECORD_BYTES_MAX

TEXT_BYTES_MAX = 16 << 10
"""Maximum total size of the tag, keys and properties (names and values) of one message."""
PROPERTIES_MAX = 128
"""Maximum number of properties of one message."""

DIGITS_MAX = 19

RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
"""RocketMQ's names of the properties with the original topic and the original message id of a copy."""
RECONSUME_TIMES = "RECONSUME_TIMES"
"""The number of failed attempts of a retry copy."""
ORIGIN_NAMES = (
    RETRY_TOPIC, ORIGIN_MESSAGE_ID, "ORIGIN_ENODE", "ORIGIN_QUEUE_ID", "ORIGIN_OFFSET", "ORIGIN_STORED_AT_MS",
)  # fmt: skip
"""The properties of a retry copy that name the original place of its message."""
CORRELATION_ID, REPLY_TO_CLIENT, TTL = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
"""RocketMQ's names of the properties of a request: its id, the requester's address, and the timeout in milliseconds."""
REQUEST_PROPERTIES = (CORRELATION_ID, REPLY_TO_CLIENT, TTL)
SYSTEM_PROPERTIES = frozenset({*ORIGIN_NAMES, RECONSUME_TIMES, *REQUEST_PROPERTIES})
"""The properties that only servers write, besides those of dead letters. A client's message must not have them.

Readers trust the origin of a message only in retry topics and dead-letter topics.
"""
DEAD_LETTER_PROPERTIES = "DLQ_"
"""The properties of a dead letter begin with this prefix. All such names are reserved."""


def is_system_property(name: str) -> bool:
    """Whether only servers write this property."""
    return name in SYSTEM_PROPERTIES or name.startswith(DEAD_LETTER_PROPERTIES)


def has_system_property(names: Iterable[str]) -> bool:
    """Whether only servers write one of these properties."""
    return any(map(is_system_property, names))


def without_system_properties(properties: Mapping[str, str], kept: Collection[str] = ()) -> Mapping[str, str]:
    """The properties that a client may send, and those of `kept`; the same object if these are all properties."""
    if not has_system_property(properties):
        return properties
    return {name: value for name, value in properties.items() if name in kept or not is_system_property(name)}


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """The limits of one message's properties, texts and size."""

    properties: int = PROPERTIES_MAX
    text_bytes: int = TEXT_BYTES_MAX
    single_bytes: int = SINGLE_RECORD_BYTES_MAX
    system_properties: bool = False
    """Whether properties that only servers write are allowed."""

    @property
    def property_name(self) -> "TextRule":
        """The rule for names of properties."""
        return SYSTEM_PROPERTY_NAME if self.system_properties else PROPERTY_NAME


PRODUCER_LIMITS = MessageLimits()
REQUEST_LIMITS = MessageLimits(
    PROPERTIES_MAX + len(REQUEST_PROPERTIES), TEXT_BYTES_MAX + 2048, SINGLE_RECORD_BYTES_MAX, system_properties=True
)
"""For messages of clients to which a snode may have added the properties of a request."""
COPY_LIMITS = MessageLimits(PROPERTIES_MAX + 32, 2 * TEXT_BYTES_MAX, COPY_RECORD_BYTES_MAX, system_properties=True)
"""For copies that a server makes: their additional properties, such as origin and reason, always fit."""

TRACEPARENT = "traceparent"
"""The property in which OpenTelemetry's agents send and read the W3C trace context."""
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def without_control_characters(text: str) -> str:
    """The text with a blank in place of each control character, so that it may be a property's value."""
    return _CONTROL.sub(" ", text)


@dataclass(frozen=True, slots=True)
class TextRule:
    """The rule for one kind of text; `what` is the name of this kind in errors."""

    what: str
    bytes_max: int = TEXT_BYTES_MAX
    empty_allowed: bool = False
    blank_allowed: bool = False
    bar_allowed: bool = True
    reserved_allowed: bool = True
    """Whether the text may be the name of a property that only servers write."""

    def check(self, text: object, field: str) -> None:
        """Raise Invalid, naming `field`, if `text` is not a text or breaks the rule."""
        if not isinstance(text, str):
            raise Invalid(f"the {self.what} is a {type(text).__name__}; give text (str)", field=field)
        if not text:
            if not self.empty_allowed:
                raise Invalid(f"the {self.what} is empty; give at least one character or leave it out", field=field)
            return
        if not self.blank_allowed and not text.strip(" "):
            raise Invalid(f"the {self.what} has only blanks; give other characters or leave it out", field=field)
        control = _CONTROL.search(text)
        if control:
            raise Invalid(
                f"the {self.what} has the control character U+{ord(control.group()):04X} at {control.start()}; "
                "take control characters out",
                field=field,
            )
        if not self.bar_allowed and "|" in text:
            raise Invalid(f"the {self.what} {text[:80]!r} has a '|', which filters use to separate tags", field=field)
        if not self.reserved_allowed and is_system_property(text):
            raise reserved_name(text, field)
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise Invalid(f"the {self.what} cannot be written as UTF-8: {error.reason}", field=field) from None
        if size > self.bytes_max:
            raise Invalid(f"the {self.what} has {size} bytes as UTF-8; at most {self.bytes_max} fit", field=field)

    def check_list(self, texts: object, field: str) -> None:
        """Raise Invalid, naming `field`, unless `texts` is a tuple or a list. Its texts are not checked."""
        if not isinstance(texts, (tuple, list)):
            raise Invalid(
                f"{self.what}s are a {type(texts).__name__}; give a tuple or a list of texts, such as ('a',)",
                field=field,
            )

    def quickly_holds(self, text: object) -> bool:
        """A fast check of one text. True means that it certainly keeps the rule; False means that `check` decides."""
        return (
            isinstance(text, str)
            and text.isprintable()
            and len(text) * 4 <= self.bytes_max
            and (bool(text) or self.empty_allowed)
            and (self.bar_allowed or "|" not in text)
            and (self.blank_allowed or text[:1] != " ")
            and (self.reserved_allowed or not is_system_property(text))
        )

    def holds(self, texts: list[str], joined: str) -> bool:
        """A fast check of texts, whose concatenation is `joined`: True if they certainly keep the rule.

        False means that `check` decides for each text. The caller checks the lengths of the texts.
        """
        return (
            joined.isprintable()
            and (self.bar_allowed or "|" not in joined)
            and (self.empty_allowed or "" not in texts)
            and (self.blank_allowed or " " not in joined or not any(map(str.isspace, texts)))
            and (self.reserved_allowed or not has_system_property(texts))
        )


TAG = TextRule("tag", empty_allowed=True, bar_allowed=False)
PROPERTY_NAME = TextRule("property name", reserved_allowed=False)
PROPERTY_VALUE = TextRule("property value", empty_allowed=True, blank_allowed=True)
SYSTEM_PROPERTY_NAME = TextRule("property name")
"""The rule for the copies that servers make."""


def reserved_name(name: str, field: str) -> Invalid:
    """The error for a client that sends a property which only servers write."""
    return Invalid(
        f"only the servers write the property {name}; remove it. To send a received message again, "
        "use Message.without_system_properties() or a property with another name",
        field=field,
    )


def whole_number(text: str, bits: int = 31) -> int | None:
    """The number in a property's value, 0 or more, of at most `bits` bits; None for any other text.

    Senders may write any text into most properties.
    """
    number = int(text) if len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal() else None
    return number if number is not None and number.bit_length() <= bits else None


def trace_context_of(own: str | None, properties: Mapping[str, str]) -> str | None:
    """The trace context `own` of a message, or that in its properties if it has none of its own."""
    if own or TRACEPARENT not in properties:
        return own
    carried = properties[TRACEPARENT]
    return carried if is_traceparent(carried) else own


def is_traceparent(text: str) -> bool:
    """Whether a text has the form of a W3C trace context."""
    return _TRACEPARENT.fullmatch(text) is not None

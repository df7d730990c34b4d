"""The rules for the texts of a message: one table for the producer's checks and the server's.

The rules are RocketMQ's, because messages of either protocol must be readable through the other one. "Blank" means
made only of spaces (U+0020); control characters are U+0000-001F and U+007F-009F. Limits count UTF-8 bytes.
"""

import re
from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.common.records.sealed_batch import COPY_RECORD_BYTES_MAX, SINGLE_RECORD_BYTES_MAX

TEXT_BYTES_MAX = 16 << 10
"""Maximum total size of the tag, keys and properties (names and values) of one message."""
PROPERTIES_MAX = 128
"""Maximum number of properties of one message."""

DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """The limits of one message's properties, texts and size."""

    properties: int = PROPERTIES_MAX
    text_bytes: int = TEXT_BYTES_MAX
    single_bytes: int = SINGLE_RECORD_BYTES_MAX


PRODUCER_LIMITS = MessageLimits()
COPY_LIMITS = MessageLimits(PROPERTIES_MAX + 32, 2 * TEXT_BYTES_MAX, COPY_RECORD_BYTES_MAX)
"""For copies that a server makes: their additional properties, such as origin and reason, always fit."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def without_control_characters(text: str) -> str:
    """A text in a form that a property may hold: blanks instead of control characters."""
    return _CONTROL.sub(" ", text)


@dataclass(frozen=True, slots=True)
class TextRule:
    """The rule for one kind of text; `what` names it in errors."""

    what: str
    bytes_max: int = TEXT_BYTES_MAX
    empty_allowed: bool = False
    blank_allowed: bool = False
    bar_allowed: bool = True

    def check(self, text: object, field: str) -> None:
        """Raise Invalid, naming `field`, unless `text` is a text of this kind."""
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
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise Invalid(f"the {self.what} cannot be written as UTF-8: {error.reason}", field=field) from None
        if size > self.bytes_max:
            raise Invalid(f"the {self.what} has {size} bytes as UTF-8; at most {self.bytes_max} fit", field=field)

    def quickly_holds(self, text: object) -> bool:
        """A fast check whether one text certainly keeps the rule; False means "check it"."""
        return (
            isinstance(text, str)
            and text.isprintable()
            and len(text) * 4 <= self.bytes_max
            and (bool(text) or self.empty_allowed)
            and (self.bar_allowed or "|" not in text)
            and (self.blank_allowed or text[:1] != " ")
        )

    def holds(self, texts: list[str], joined: str) -> bool:
        """A fast check whether texts, whose concatenation is `joined`, certainly keep the rule.

        False means "check each": the texts may still be valid. The caller checks lengths.
        """
        return (
            joined.isprintable()
            and (self.bar_allowed or "|" not in joined)
            and (self.empty_allowed or "" not in texts)
            and (self.blank_allowed or " " not in joined or not any(map(str.isspace, texts)))
        )


TAG = TextRule("tag", empty_allowed=True, bar_allowed=False)
KEY = TextRule("key")
MESSAGE_GROUP = TextRule("message group", bytes_max=63)
PROPERTY_NAME = TextRule("property name")
PROPERTY_VALUE = TextRule("property value", empty_allowed=True, blank_allowed=True)
MESSAGE_ID = TextRule("message id", bytes_max=255)
BORN_HOST = TextRule("born host", bytes_max=255, empty_allowed=True, blank_allowed=True)
TRACE_CONTEXT = TextRule("trace context", bytes_max=1024, empty_allowed=True, blank_allowed=True)


def whole_number(text: str, bits: int = 31) -> int | None:
    """The number in a property, 0 or more, of at most this many bits; None for any other text.

    Senders may write any text into most properties.
    """
    number = int(text) if len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal() else None
    return number if number is not None and number.bit_length() <= bits else None

"""Requests that no client of ours would send: every field of any message filled with an odd value."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ortoo.common.process.randomness import Randomness

DEPTH_MAX = 4
TEXTS: Sequence[str] = (
    "",
    "x",
    "a b",
    "%RETRY%fuzz-group",
    "%DLQ%fuzz-group",
    "TBW102",
    "..",
    "../../etc/passwd",
    "naïve-ключ-漢字",
    "\u0000",
    "t" * 300,
    "t" * 70_000,
    "*",
    "a = 1 AND (b IS NOT NULL OR",
    "TAGS is not null and TAGS in ('a')",
    "-1",
    "99999999999999999999",
)
NUMBERS: Sequence[int] = (0, 1, 2, 7, 255, 65_536, (1 << 31) - 1, (1 << 32) - 1, (1 << 62) + 1)
SIGNED: Sequence[int] = (-1, -(1 << 31))
FLOATS: Sequence[float] = (0.0, -1.0, 1e300, float("inf"), float("nan"))
_KINDS = FieldDescriptor


class Nonsense:
    """Makes such requests, for names that no other client uses."""

    def __init__(self, chance: Randomness, names: Sequence[str]) -> None:
        """Use `names` for half of the texts, and odd ones for the rest."""
        self._chance = chance
        self._names = names

    def request(self, descriptor: Descriptor) -> Message:
        """A message of this type."""
        message = GetMessageClass(descriptor)()
        self._fill(message, DEPTH_MAX)
        return message

    def bytes(self, length_max: int = 64) -> bytes:
        """Random bytes without meaning."""
        return bytes(self._chance.below(256) for _ in range(self._chance.below(length_max)))

    def _fill(self, message: Message, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._chance.below(3) == 0 or (field.containing_oneof is not None and self._chance.below(2)):
                continue
            if field.is_repeated:
                self._fill_repeated(message, field, depth)
            elif field.type == _KINDS.TYPE_MESSAGE:
                if depth:
                    self._fill(getattr(message, field.name), depth - 1)
                    getattr(message, field.name).SetInParent()
            else:
                setattr(message, field.name, self._value(field))

    def _fill_repeated(self, message: Message, field: Any, depth: int) -> None:
        target: Any = getattr(message, field.name)
        for _ in range(self._chance.below(4)):
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
                if value.type != _KINDS.TYPE_MESSAGE:
                    target[self._value(key)] = self._value(value)
            elif field.type == _KINDS.TYPE_MESSAGE:
                if depth:
                    self._fill(target.add(), depth - 1)
            else:
                target.append(self._value(field))

    def _value(self, field: Any) -> Any:
        kind = field.type
        if kind == _KINDS.TYPE_STRING:
            return self._one(self._names) if self._chance.below(2) else self._one(TEXTS)
        if kind == _KINDS.TYPE_BYTES:
            return self.bytes()
        if kind == _KINDS.TYPE_BOOL:
            return bool(self._chance.below(2))
        if kind == _KINDS.TYPE_ENUM:
            return self._one([value.number for value in field.enum_type.values])
        if kind in (_KINDS.TYPE_DOUBLE, _KINDS.TYPE_FLOAT):
            return self._one(FLOATS)
        number = self._one(NUMBERS)
        if kind in (_KINDS.TYPE_INT32, _KINDS.TYPE_SINT32, _KINDS.TYPE_SFIXED32):
            return self._one(SIGNED) if self._chance.below(4) == 0 else min(number, (1 << 31) - 1)
        if kind in (_KINDS.TYPE_UINT32, _KINDS.TYPE_FIXED32):
            return min(number, (1 << 32) - 1)
        if kind in (_KINDS.TYPE_INT64, _KINDS.TYPE_SINT64, _KINDS.TYPE_SFIXED64):
            return self._one(SIGNED) if self._chance.below(4) == 0 else number
        return number

    def _one(self, values: Sequence[Any]) -> Any:
        return values[self._chance.below(len(values))]

"""Reads enum values that other processes sent or stored.

    strategy = known_or(AllocationStrategy, news.strategy, AllocationStrategy.AVERAGELY)
    check_known(request, "flush_mode")     # a request of a client: Invalid for an unknown value

A process of another version may use a value that this version does not know. Protobuf passes such a number on, and the
constructor of a Python enum raises ValueError for it. Therefore enums of answers, notifications and stored records are
read only by `known_or`, and each call gives the value that keeps this process safe. Requests are checked first.
"""

from enum import Enum
from typing import Any, TypeVar

from google.protobuf.message import Message

from ortoo.common.errors import Invalid

Known = TypeVar("Known", bound=Enum)
Default = TypeVar("Default")


def known_or(kind: type[Known], value: object, default: Default) -> Known | Default:
    """The enum's value, or `default` if this version does not know it.

    To keep an unknown number, pass it as `default`.
    """
    try:
        return kind(value)
    except ValueError:
        return default


def check_known(request: Message, *names: str, prefix: str = "") -> None:
    """Reject unknown values in enum fields. Errors: Invalid, with the field's path below `prefix` and all values."""
    if (error := find_unknown(request, *names, prefix=prefix)) is not None:
        raise error


def find_unknown(request: Message, *names: str, prefix: str = "") -> Invalid | None:
    """The error that `check_known` would raise, for callers that return it in an answer; None if all are known."""
    for name in names:
        enum, number = request.DESCRIPTOR.fields_by_name[name].enum_type, getattr(request, name)
        assert enum is not None, f"{name} is not an enum"
        if number not in enum.values_by_number:
            return unknown_value(enum, number, f"{prefix}.{name}" if prefix else name)
    return None


def unknown_value(enum: Any, number: int, path: str) -> Invalid:
    """The error for a number that a protobuf enum (its descriptor) does not have, in the field `path` of a request."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in enum.name).strip()
    known = ", ".join(value.name for value in enum.values)
    return Invalid(f"{number} is not a valid {words}; give one of {known}", field=path)


def name_of(enum: Any, number: int) -> str:
    """The name of a value of a protobuf enum; its number in digits if this version does not know it."""
    value = enum.DESCRIPTOR.values_by_number.get(number)
    return str(number) if value is None else value.name

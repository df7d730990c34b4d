"""Plain values from protobuf messages and back, field by field, where both call a field by the same name.

    topic = read(Topic, message)                                     # the arguments of Topic that Topic's message has
    topic = read(Topic, message, publish_order=order)                # one that goes by another name or needs a rule
    message = write(topic_pb2.Topic, topic)                          # the fields that the value has as attributes

A value is a dataclass, a NamedTuple or any class whose constructor is annotated; values inside a value are read and
written the same way. How a pair of classes fits together is found out once. A field or argument that the other side
does not have is left out, so an argument without a default that the message lacks is a TypeError at the first use.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ortoo.common.errors import Invalid

Value = TypeVar("Value")
Written = TypeVar("Written", bound=Message)
_Convert = Callable[[Any], Any]


def read(kind: type[Value], message: Message, prefix: str = "", /, **given: Any) -> Value:
    """A `kind` from a message; `given` arguments are used as they are.

    What a message leaves out is the argument's default, if the field knows of being left out (`optional`, or a
    message); of an argument that may be None it is None, and so is an empty text or a zero. Repeated fields are tuples,
    maps are dicts. Errors: Invalid for an enum's number that is not known here; its field is named below `prefix`.
    """
    made: Any = kind
    for name, get in _reading(made, message.DESCRIPTOR, prefix):
        if name not in given:
            found = get(message)
            if found is not _LEFT_OUT:
                given[name] = found
    return kind(**given)


def write(kind: type[Written], value: Any, /, **given: Any) -> Written:
    """A message from a value; `given` fields are used as they are, and what is None is left out."""
    held_by: Any = type(value)
    for name, convert in _writing(kind.DESCRIPTOR, held_by):
        if name not in given:
            held = getattr(value, name)
            given[name] = held if convert is None or held is None else convert(held)
    return kind(**given)


_LEFT_OUT = object()


@cache
def _reading(kind: Any, descriptor: Descriptor, prefix: str) -> list[tuple[str, _Convert]]:
    """The arguments of `kind` that a message has, each with what takes it out of one."""
    is_plain = hasattr(kind, "__dataclass_fields__") or issubclass(kind, tuple)
    hints = typing.get_type_hints(kind if is_plain else kind.__init__)
    return [
        (name, _getter(descriptor.fields_by_name[name], hints[name], argument.default, prefix))
        for name, argument in inspect.signature(kind).parameters.items()
        if name in descriptor.fields_by_name
    ]


def _getter(field: FieldDescriptor, hint: Any, default: Any, prefix: str) -> _Convert:
    """What takes one argument, annotated `hint`, out of a message; it may answer _LEFT_OUT."""
    name = field.name
    may_be_none = typing.get_origin(hint) in (Union, types.UnionType) and type(None) in typing.get_args(hint)
    if may_be_none:
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if _is_map(field):
        # The order of a protobuf map is that of addresses in memory; this one is its own.
        return lambda message: dict(sorted(getattr(message, name).items()))
    if field.is_repeated:
        item = _item_reader(field, (typing.get_args(hint) or (Any,))[0], prefix)
        if item is None:
            return lambda message: tuple(getattr(message, name))
        return lambda message: tuple(map(item, getattr(message, name)))
    convert = _item_reader(field, hint, prefix) or (lambda found: found)
    if field.has_presence:
        absent = None if may_be_none else _LEFT_OUT
        if absent is None or default is not inspect.Parameter.empty:
            return lambda message: convert(getattr(message, name)) if message.HasField(name) else absent
    if may_be_none:
        return lambda message: convert(getattr(message, name)) or None
    return lambda message: convert(getattr(message, name))


def _item_reader(field: FieldDescriptor, kind: Any, prefix: str) -> _Convert | None:
    """What makes a `kind` of what the field, or one of its items, holds; None if it is that already."""
    path = f"{prefix}.{field.name}" if prefix else field.name
    if field.message_type is not None:
        return lambda message: read(kind, message, path)
    if field.enum_type is None or not (isinstance(kind, type) and issubclass(kind, Enum)):
        return None
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", field.enum_type.name).lower()
    known = ", ".join(value.name for value in field.enum_type.values)

    def checked(number: int) -> Enum:
        try:
            return kind(number)
        except ValueError:
            raise Invalid(f"{number} is no {words}; give one of {known}", field=path) from None

    return checked


@cache
def _writing(descriptor: Descriptor, kind: Any) -> list[tuple[str, _Convert | None]]:
    """The fields of a message that a `kind` has, each with what turns what it holds into what the message takes."""
    names = {*inspect.signature(kind).parameters, *dir(kind)}
    return [(field.name, _item_writer(field)) for field in descriptor.fields if field.name in names]


def _item_writer(field: FieldDescriptor) -> _Convert | None:
    if field.message_type is None or _is_map(field):
        return None
    inner = GetMessageClass(field.message_type)

    def one(held: Any) -> Message:
        return held if isinstance(held, Message) else write(inner, held)

    return (lambda held: [one(item) for item in held]) if field.is_repeated else one


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry

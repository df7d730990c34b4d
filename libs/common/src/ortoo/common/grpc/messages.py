"""Converts protobuf messages to plain values and back, field by field, where both have the same field name.

    topic = read(Topic, message)
    topic = read(Topic, message, publish_order=order)     # a field whose name or form differs
    message = write(topic_pb2.Topic, topic)

A value is a dataclass, a NamedTuple or any class whose constructor is annotated; values inside a value are read and
written the same way. The mapping of a pair of classes is computed once. Fields and arguments that the other side lacks
are left out. An argument that has no default and is missing in the message raises TypeError at the first use.

Enums are converted by `read_request` only, which rejects unknown numbers. For `read`, the caller passes each enum:

    topic = read(Topic, message, permission=known_or(Permission, message.permission, Permission.READ_WRITE))
"""

import inspect
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from typing import Any, NoReturn, TypeVar, Union

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ortoo.common.grpc.enum_values import known_or, unknown_value

Value = TypeVar("Value")
Written = TypeVar("Written", bound=Message)
_Convert = Callable[[Any], Any]


def read(kind: type[Value], message: Message, /, **given: Any) -> Value:
    """Make an object of class `kind` from a message; arguments in `given` replace fields of the message.

    A field with presence (`optional`, or a message) that is absent becomes the argument's default. An argument that may
    be None becomes None if the field is absent, an empty text or zero. Repeated fields are tuples, maps are dicts.
    An enum that is not given raises TypeError, because the sender may know more values than this process.
    """
    return _read(kind, message, None, given)


def read_request(kind: type[Value], message: Message, prefix: str = "", /, **given: Any) -> Value:
    """Like `read`, but converts enums. Errors: Invalid for an unknown number, naming the path below `prefix`."""
    return _read(kind, message, prefix, given)


def _read(kind: type[Value], message: Message, prefix: str | None, given: dict[str, Any]) -> Value:
    made: Any = kind
    for name, get in _reading(made, message.DESCRIPTOR, prefix):
        if name not in given:
            found = get(message)
            if found is not _LEFT_OUT:
                given[name] = found
    return kind(**given)


def write(kind: type[Written], value: Any, /, **given: Any) -> Written:
    """Make a message from a value. Fields in `given` replace fields of the value; fields that are None stay unset."""
    held_by: Any = type(value)
    for name, convert in _writing(kind.DESCRIPTOR, held_by):
        if name not in given:
            held = getattr(value, name)
            given[name] = held if convert is None or held is None else convert(held)
    return kind(**given)


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether a field is repeated. Protobuf before 6.31 has only `label`, which newer versions lack."""
    named: Any = field
    return bool(named.is_repeated if hasattr(field, "is_repeated") else named.label == named.LABEL_REPEATED)


_LEFT_OUT = object()


@cache
def _reading(kind: Any, descriptor: Descriptor, prefix: str | None) -> list[tuple[str, _Convert]]:
    """The arguments of `kind` that a message has, each with the function that reads it.

    `prefix` is the path of the message in a request; None for other messages, whose enums are not converted.
    """
    is_plain = hasattr(kind, "__dataclass_fields__") or issubclass(kind, tuple)
    hints = typing.get_type_hints(kind if is_plain else kind.__init__)
    return [
        # A class may declare a signature whose arguments its constructor does not name.
        (name, _getter(descriptor.fields_by_name[name], hints.get(name, argument.annotation), argument.default, prefix))
        for name, argument in inspect.signature(kind).parameters.items()
        if name in descriptor.fields_by_name
    ]


def _getter(field: FieldDescriptor, hint: Any, default: Any, prefix: str | None) -> _Convert:
    """The function that reads one argument, annotated `hint`, from a message; it may return _LEFT_OUT."""
    name = field.name
    may_be_none = typing.get_origin(hint) in (Union, types.UnionType) and type(None) in typing.get_args(hint)
    if may_be_none:
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if _is_map(field):
        # Protobuf maps iterate in the order of memory addresses; sorting makes the order stable.
        return lambda message: dict(sorted(getattr(message, name).items()))
    if is_repeated(field):
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


def _item_reader(field: FieldDescriptor, kind: Any, prefix: str | None) -> _Convert | None:
    """The function that converts the field, or one of its items, to `kind`; None if no conversion is needed."""
    path = None if prefix is None else f"{prefix}.{field.name}".removeprefix(".")
    if field.message_type is not None:
        return lambda message: _read(kind, message, path, {})
    if field.enum_type is None or not (isinstance(kind, type) and issubclass(kind, Enum)):
        return None
    return partial(_refuse_enum, field.name, kind) if path is None else partial(_checked, field.enum_type, kind, path)


def _checked(enum: EnumDescriptor, kind: type[Enum], path: str, number: int) -> Enum:
    value = known_or(kind, number, None)
    if value is None:
        raise unknown_value(enum, number, path)
    return value


def _refuse_enum(name: str, kind: type[Enum], number: int) -> NoReturn:
    raise TypeError(f"{name} is an enum: pass {name}=known_or({kind.__name__}, message.{name}, ...) to read")


@cache
def _writing(descriptor: Descriptor, kind: Any) -> list[tuple[str, _Convert | None]]:
    """The message's fields that the class `kind` also has, each with the function that converts its value."""
    names = {*inspect.signature(kind).parameters, *dir(kind)}
    return [(field.name, _item_writer(field)) for field in descriptor.fields if field.name in names]


def _item_writer(field: FieldDescriptor) -> _Convert | None:
    if field.message_type is None or _is_map(field):
        return None
    inner = GetMessageClass(field.message_type)

    def one(held: Any) -> Message:
        return held if isinstance(held, Message) else write(inner, held)

    return (lambda held: [one(item) for item in held]) if is_repeated(field) else one


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry

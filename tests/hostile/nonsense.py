"""Invalid requests: of the right structure with any values, and valid ones with some bytes changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from tests.hostile.surface import Method

DEPTH_MAX = 5
REPEATED_MAX = 4
_SIGNED = {
    FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_SINT32: 32, FieldDescriptor.TYPE_SFIXED32: 32,
    FieldDescriptor.TYPE_INT64: 64, FieldDescriptor.TYPE_SINT64: 64, FieldDescriptor.TYPE_SFIXED64: 64,
}  # fmt: skip
_UNSIGNED = {
    FieldDescriptor.TYPE_UINT32: 32, FieldDescriptor.TYPE_FIXED32: 32,
    FieldDescriptor.TYPE_UINT64: 64, FieldDescriptor.TYPE_FIXED64: 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """Names and texts that exist on the server, so that invalid requests pass the first check."""

    texts: Sequence[str]
    """Topics, groups, clients, handles, message ids."""
    blobs: Sequence[bytes]
    """Record batches and the like."""


def _edges(low: int, high: int) -> st.SearchStrategy[int]:
    """Integers, with the smallest, the largest and those around 0 more often than others."""
    near = [n for n in (low, low + 1, -1, 0, 1, 2, 16, 1_000, high - 1, high) if low <= n <= high]
    return st.sampled_from(near) | st.integers(low, high)


def _scalar(field: FieldDescriptor, words: Words) -> st.SearchStrategy[Any]:
    if field.type in _SIGNED:
        bits = _SIGNED[field.type]
        return _edges(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if field.type in _UNSIGNED:
        return _edges(0, (1 << _UNSIGNED[field.type]) - 1)
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return st.sampled_from(words.texts) | st.text(max_size=300)
        case FieldDescriptor.TYPE_BYTES:
            return st.sampled_from(words.blobs) | st.binary(max_size=2_000)
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_ENUM if field.enum_type is not None:
            return st.sampled_from([v.number for v in field.enum_type.values]) | st.integers(-3, 99)
        case _:
            return st.floats(width=32)


@st.composite
def message_of(draw: st.DrawFn, method: Method, words: Words) -> Message:
    """A request of `method` with any values."""
    request = method.made()
    _fill(draw, request, method.request, words, 0)
    return request


def _fill(draw: st.DrawFn, message: Message, descriptor: Descriptor, words: Words, depth: int) -> None:
    for field in descriptor.fields:
        if depth >= DEPTH_MAX or not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(draw, message, field, words)
        elif field.message_type is not None:
            if field.is_repeated:
                for _ in range(draw(st.integers(0, REPEATED_MAX))):
                    _fill(draw, getattr(message, field.name).add(), field.message_type, words, depth + 1)
            else:
                inner = getattr(message, field.name)
                inner.SetInParent()
                _fill(draw, inner, field.message_type, words, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(_scalar(field, words), max_size=REPEATED_MAX)))
        else:
            setattr(message, field.name, draw(_scalar(field, words)))


def _fill_map(draw: st.DrawFn, message: Message, field: FieldDescriptor, words: Words) -> None:
    assert field.message_type is not None
    key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    if value.message_type is None:
        for _ in range(draw(st.integers(0, REPEATED_MAX))):
            getattr(message, field.name)[draw(_scalar(key, words))] = draw(_scalar(value, words))


@st.composite
def request_of(draw: st.DrawFn, method: Method, words: Words) -> bytes:
    """A serialised request of `method`, in one of four cases with bytes changed."""
    data = bytearray(draw(message_of(method, words)).SerializeToString())
    if draw(st.integers(0, 3)) == 0:
        for _ in range(draw(st.integers(1, 6))):
            place = draw(st.integers(0, len(data)))
            match draw(st.sampled_from(("change", "insert", "cut", "repeat"))):
                case "change" if place < len(data):
                    data[place] = draw(st.integers(0, 255))
                case "insert":
                    data[place:place] = draw(st.binary(min_size=1, max_size=8))
                case "cut":
                    del data[place : place + draw(st.integers(1, 16))]
                case _:
                    data[place:place] = data[max(0, place - 16) : place]
    return bytes(data)

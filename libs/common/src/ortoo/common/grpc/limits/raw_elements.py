"""Counts the elements of lists (repeated fields) in the raw bytes of a protobuf message.

The weight of an element is its decoding cost: 2 for a message, 1 for a text, 1/8 of its bytes for a packed number.
The weight of a message is at most its number of bytes. The count stops as soon as one list, or the weight of
all lists, exceeds its limit.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from ortoo.common.errors import Invalid

UNCOUNTED_BYTES: Final = 262_144
"""A request of at most this many bytes is decoded without counting."""
WEIGHT_MAX: Final = 524_288
"""Maximum weight of all lists of one request; decoding them takes at most about 50 MiB."""
FIELDS_MAX: Final = 65_536
"""Maximum number of visited fields of one request."""
COARSE_FIELDS_MAX: Final = 16_384
"""Number of fields that are visited before the weight is estimated more cheaply."""
BEGINNING_FIELDS_MAX: Final = 5_000
"""Number of fields in the beginning of a compressed request, above which the request is refused."""
PACKED_BYTES: Final = 8
"""The number of bytes of packed numbers with a weight of 1."""
VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED_64: 8, _FIXED_32: 4}
_HIGH: Final = 0x80
_LOW: Final = 0x7F
_CONTINUED: Final = bytes(range(_HIGH, 0x100))
"""Bytes of a varint that are not its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawField:
    """A list in a protobuf message, or a field that contains a list at any depth."""

    path: str
    """The names of the fields from the request to this one, separated by dots."""
    elements_max: int
    """The maximum number of elements; 0 for a field that is no list."""
    weight: int
    """The weight of one element."""
    is_packable: bool
    """Whether several elements may follow one key."""
    packed_bytes: int
    """The length of an element that is packed; 0 for a varint."""
    inner: "RawElements | None"
    """The lists below this field; None if there are none."""

    @property
    def short_bytes(self) -> int:
        """A list of at most this many bytes cannot have too many elements."""
        return self.elements_max * (1 if self.is_packable else 2)


class RawElements:
    """The lists of one type of message, including the lists of its inner messages."""

    def __init__(self, fields: Mapping[int, RawField]) -> None:
        """`fields` maps field numbers to the fields that are lists or lead to lists."""
        self.fields = fields
        inner = [one.inner for one in fields.values() if one.inner is not None]
        lists = [one.short_bytes for one in fields.values() if one.elements_max]
        self.short_bytes: int = min(lists + [one.short_bytes for one in inner])
        """A message of at most this many bytes cannot have a list that is too long."""
        self.uncounted_bytes: int = min(
            [UNCOUNTED_BYTES]
            + [
                one.inner.short_bytes if one.elements_max else one.inner.uncounted_bytes
                for one in fields.values()
                if one.inner is not None
            ]
        )
        """A message of at most this many bytes is cheap to decode, and no list in an element of another is too long."""
        self.key_bytes: set[int] = _key_bytes(fields).union(*(one.key_bytes for one in inner))
        """The bytes with which the key of a list can begin."""
        self.is_packable: bool = any(one.is_packable for one in fields.values()) or any(
            one.is_packable for one in inner
        )
        self._translated = bytes(sorted(self.key_bytes))

    def check(self, data: bytes) -> bool:
        """Refuse a message that is too costly to decode; otherwise return whether all its lists are known to be short.

        Errors: DecodeError, and Invalid, naming the list.
        """
        if len(data) <= self.uncounted_bytes:
            return False
        weight = _visit(data, self, COARSE_FIELDS_MAX, visits_all=False)
        if weight is not None and weight <= WEIGHT_MAX:
            return True
        if self.weight_at_most(data) <= WEIGHT_MAX:
            return weight is not None
        if _visit(data, self, FIELDS_MAX, visits_all=True) is None:
            raise _too_many_fields(data)
        return True

    def check_beginning(self, data: bytes) -> None:
        """Refuse a message whose first bytes have too many elements or fields. Errors: Invalid."""
        with contextlib.suppress(DecodeError):  # the last field of the beginning is incomplete
            if _visit(data, self, BEGINNING_FIELDS_MAX, visits_all=False) is None:
                raise _too_many_fields(data, BEGINNING_FIELDS_MAX)

    def weight_at_most(self, data: bytes) -> int:
        """An upper bound of the message's decoding cost: each byte that can begin a key counts as a list's element."""
        bound = 2 * (len(data) - len(data.translate(None, self._translated)))
        return bound + len(data) // PACKED_BYTES if self.is_packable else bound


def _key_bytes(fields: Mapping[int, RawField]) -> set[int]:
    """The bytes with which the keys of these lists can begin.

    A key that is encoded with more bytes than necessary begins with the same byte, but with its high bit set.
    """
    found: set[int] = set()
    for number, field in fields.items():
        if field.elements_max:
            kinds = (_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32) if field.is_packable else (_LENGTH_DELIMITED,)
            lows = {(number << 3 | kind) & 0x7F for kind in kinds}
            found |= lows | {low | _HIGH for low in lows}
    return found


def _visit(  # noqa: C901  # one loop, because a call for each field would double its time
    data: bytes, elements: RawElements, fields_max: int, *, visits_all: bool
) -> int | None:
    """The weight of a message; None if it has more than `fields_max` fields.

    Without `visits_all` the result is an upper bound, because short elements of lists are not visited. Errors:
    DecodeError, and Invalid, naming the list.
    """
    position, end, weight, fields_left = 0, len(data), 0, fields_max
    fields = elements.fields
    counts: dict[str, int] = {}
    """The counts of the lists in the visited element. A message outside of lists counts as part of its parent."""
    above: list[tuple[int, Mapping[int, RawField], dict[str, int]]] = []
    try:
        while True:
            if position >= end:
                if position > end:
                    raise DecodeError("the request is truncated")
                if not above:
                    return weight
                end, fields, counts = above.pop()
                continue
            fields_left -= 1
            if fields_left < 0:
                return None
            key = data[position]
            position += 1
            if key >= _HIGH:
                more = data[position]
                if more < _HIGH:
                    key, position = key & _LOW | more << 7, position + 1
                else:
                    key, position = _varint(data, position - 1)
            kind = key & 7
            if kind == _LENGTH_DELIMITED:
                length = data[position]
                position += 1
                if length >= _HIGH:
                    more = data[position]
                    if more < _HIGH:
                        length, position = length & _LOW | more << 7, position + 1
                    else:
                        length, position = _varint(data, position - 1)
            elif kind == _VARINT:
                length = 1 if data[position] < _HIGH else _varint(data, position)[1] - position
            elif kind in _FIXED_BYTES:
                length = _FIXED_BYTES[kind]
            else:
                raise DecodeError(f"wire type {kind} is not used by any request")
            stop = position + length
            field = fields.get(key >> 3)
            if field is None:
                position = stop
                continue
            if field.elements_max:
                weight += field.weight
                count = 1
                if field.is_packable and kind == _LENGTH_DELIMITED:
                    weight += length // PACKED_BYTES
                    count = length if length <= field.elements_max else _packed_count(data, position, stop, field)
                counts[field.path] = count = counts.get(field.path, 0) + count
                if count > field.elements_max:
                    raise too_many_elements(field)
                if visits_all and weight > WEIGHT_MAX:
                    raise _too_heavy(field)
            inner = field.inner
            if inner is None or kind != _LENGTH_DELIMITED:
                position = stop
            elif field.elements_max and not visits_all and length <= inner.short_bytes:
                weight += length
                position = stop
            else:
                if stop > end:
                    raise DecodeError("the request is truncated")
                above.append((end, fields, counts))
                end, fields = stop, inner.fields
                if field.elements_max:
                    counts = {}
    except IndexError:
        raise DecodeError("the request is truncated") from None


def _packed_count(data: bytes, position: int, stop: int, field: RawField) -> int:
    """The number of elements in a packed field."""
    if field.packed_bytes:
        return (stop - position) // field.packed_bytes
    return len(data[position:stop].translate(None, _CONTINUED))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it. Errors: DecodeError, and IndexError if the data end within the number."""
    number = shift = 0
    for at in range(position, position + VARINT_BYTES_MAX):
        byte = data[at]
        number |= (byte & _LOW) << shift
        if byte < _HIGH:
            return number, at + 1
        shift += 7
    raise DecodeError("a number in the request is too long")


def too_many_elements(field: RawField) -> Invalid:
    """The error for a request with too many elements in this list."""
    most = field.elements_max
    return Invalid(
        f"{field.path} has more than {most} elements; send at most {most} in one request and the others in further "
        "requests",
        field=field.path,
    )


def _too_heavy(field: RawField) -> Invalid:
    return Invalid(
        f"the lists of the request have too many elements together, {field.path} among them; send fewer in one request "
        "and the others in further requests",
        field=field.path,
    )


def _too_many_fields(data: bytes, fields_max: int = FIELDS_MAX) -> Invalid:
    return Invalid(
        f"{len(data)} bytes of the request have more than {fields_max} protobuf fields; send less in one request and "
        "the rest in further requests"
    )

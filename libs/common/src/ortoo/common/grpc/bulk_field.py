"""Large bytes fields of protobuf messages, written with one copy instead of three and read with one instead of two.

    APPEND = BulkField(AppendRequest, "batch", "records")
    data = APPEND.write(BulkMessage(AppendRequest(queue_id=7), (records,)))   # for `request_serializer`
    request, (records,) = APPEND.read(data)                             # for `request_deserializer`

A generated class copies a bytes field when it is set, written and parsed, and at each access. Batches of a megabyte
pass here a hundred times a second. Therefore a large field is put after the message's other bytes. Protobuf merges a
nested message that comes in two pieces, so that every decoder reads the same message.
"""

from collections.abc import Callable, Iterator, MutableSequence, Sequence
from functools import reduce
from typing import Any, Final

from google.protobuf.message import DecodeError

from ortoo.common.records.wire import bytes_head

BULK_BYTES_MIN: Final = 16 << 10
"""Below this size the generated classes are as fast."""
PIECES_MAX: Final = 16_384
"""Maximum number of a message's fields besides its large field, because they are examined one by one."""


class BulkMessage:
    """A message without its large fields, and `bulks`, the contents of these fields in order."""

    __slots__ = ("bulks", "message")

    def __init__(self, message: Any, bulks: Sequence[Any] = ()) -> None:
        """`message` has no large fields; `bulks` are their contents."""
        self.message = message
        self.bulks = bulks

    def __iter__(self) -> Iterator[Any]:
        return iter((self.message, self.bulks))

    @property
    def request_id(self) -> int:
        """The message's request id."""
        number: int = self.message.request_id
        return number

    @request_id.setter
    def request_id(self, number: int) -> None:
        self.message.request_id = number


class Pieces:
    """The bytes of a message in pieces. A transport that queues them one after another saves a copy."""

    __slots__ = ("_size", "pieces")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)


class BulkField:
    """The large field in one kind of message; `names` is the path to the field from the outermost message.

    The first name may be a repeated field. Then each of its elements has one large field.
    """

    def __init__(self, kind: Any, *names: str, views: bool = False) -> None:
        """The field at `names` in a message of class `kind`; with `views`, large fields are read as views."""
        self._kind = kind
        self._bulk: Callable[[bytes | memoryview], bytes | memoryview] = memoryview if views else bytes
        self._names = names
        self._path: list[int] = []
        descriptor = kind.DESCRIPTOR
        self._is_repeated = isinstance(getattr(kind(), names[0]), MutableSequence)  # protobuf 4 has no `is_repeated`
        for name in names:
            field = descriptor.fields_by_name[name]
            self._path.append(field.number)
            descriptor = field.message_type

    def write(self, it: BulkMessage) -> bytes:
        """The bytes of the whole message; a message without `bulks` is serialized unchanged.

        If no field of the path is repeated, the large field is the concatenation of all `bulks`.
        """
        return bytes(self.write_pieces(it))

    def write_pieces(self, it: BulkMessage) -> bytes | Pieces:
        """Like `write`; a large message is not joined."""
        message, bulks = it.message, it.bulks
        if (length := sum(map(len, bulks))) < BULK_BYTES_MIN:
            if bulks and not self._is_repeated:
                bulks = (b"".join(bulks),)
            for holder, bulk in zip(self._holders(message) if bulks else (), bulks, strict=True):
                setattr(holder, self._names[-1], bulk)
            return bytes(message.SerializeToString())
        if not self._is_repeated:
            return Pieces((message.SerializeToString(), *_heads(self._path, length), *bulks))
        first, *path = self._path
        items = list(getattr(message, self._names[0]))
        message.ClearField(self._names[0])
        parts = [message.SerializeToString()]
        for item, bulk in zip(items, bulks, strict=True):
            small, heads = item.SerializeToString(), _heads(path, len(bulk))
            parts += (bytes_head(first, len(small) + sum(map(len, heads)) + len(bulk)), small, *heads, bulk)
        return Pieces(parts)

    def read(self, data: bytes) -> BulkMessage:
        """Read the message and its large fields. Errors: DecodeError."""
        if len(data) < BULK_BYTES_MIN:
            message = self._kind.FromString(data)
            return BulkMessage(
                message, [self._bulk(getattr(holder, self._names[-1])) for holder in self._holders(message)]
            )
        found: list[memoryview | None] = []
        rest = b"".join(_without(memoryview(data), self._path, found, is_outermost=True))
        if not self._is_repeated:
            # A nested message may come in pieces; the last one that has the field counts.
            found = [next((bulk for bulk in reversed(found) if bulk is not None), None)]
        return BulkMessage(self._kind.FromString(rest), [self._bulk(bulk or b"") for bulk in found])

    def _holders(self, message: Any) -> Sequence[Any]:
        """The inner messages that contain the large field."""
        first, *between = self._names[:-1]
        outer = getattr(message, first)
        return [reduce(getattr, between, one) for one in (outer if self._is_repeated else (outer,))]


def in_pieces(write: Any) -> Any:
    """A serializer that does not join large messages, if `write` is that of a `BulkField`; otherwise `write` itself."""
    field = getattr(write, "__self__", None)
    return field.write_pieces if isinstance(field, BulkField) else write


def _heads(path: Sequence[int], length: int) -> list[bytes]:
    """The key and length of each level of `path`, outermost first, that precede a field of `length` bytes."""
    heads: list[bytes] = []
    for number in reversed(path):
        heads.append(bytes_head(number, length))
        length += len(heads[-1])
    heads.reverse()
    return heads


def _without(
    data: memoryview, path: Sequence[int], found: list[memoryview | None], *, is_outermost: bool
) -> list[bytes | memoryview]:
    """The pieces of a message without the fields at `path`; the contents of these fields are appended to `found`."""
    wanted, deeper = path[0], path[1:]
    pieces: list[bytes | memoryview] = []
    position, end = 0, len(data)
    while position < end:
        if len(pieces) > PIECES_MAX or len(found) > PIECES_MAX:
            raise DecodeError(f"the message has more than {PIECES_MAX} fields outside of its large field")
        start = position
        key, position = _varint(data, position, end)
        stop = position + _field_bytes(data, key & 7, position, end)
        if key & 7 == 2:
            length, position = _varint(data, position, end)
            stop = position + length
        if stop > end:
            raise DecodeError("the message is cut or damaged")
        if key >> 3 != wanted or key & 7 != 2:
            pieces.append(data[start:stop])
        elif not deeper:
            found[-1] = data[position:stop]
        else:
            if is_outermost:
                found.append(None)
            inner = _without(data[position:stop], deeper, found, is_outermost=False)
            pieces += (bytes_head(wanted, sum(map(len, inner))), *inner)
        position = stop
    return pieces


def _field_bytes(data: memoryview, kind: int, position: int, end: int) -> int:
    """The number of bytes of a number field; 0 for a length-delimited field."""
    if kind == 0:
        return _varint(data, position, end)[1] - position
    if kind not in _WIDTHS:
        raise DecodeError(f"{kind} is not a wire type: the message is damaged")
    return _WIDTHS[kind]


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise DecodeError("a number in the message is cut or too long")


_WIDTHS = {1: 8, 2: 0, 5: 4}

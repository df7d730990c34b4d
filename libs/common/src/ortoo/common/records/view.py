"""Reading a record batch column by column: each column is decoded once, at its first use.

    view = open_batch(sealed)              # reads only the head
    view.bodies()
    view.message(7)
    list(view)                             # or view.messages(rows)

Bytes that are not a batch raise Invalid, at opening or when the damaged column is read. A newer format, an unknown
feature, or a codec whose library is not installed raises Unsupported.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import repeat
from operator import sub
from typing import Any, Final

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records import reader
from ortoo.common.records.columns import (
    FORMAT,
    KEYS,
    KNOWN_FEATURES,
    MESSAGE_COLUMNS,
    NUMBERS,
    RARE_COLUMNS,
    TAG,
    Layout,
    MessageColumn,
    Value,
)
from ortoo.common.records.compression import Codec, inflate
from ortoo.common.records.message import Message, set_body, set_keys, set_rare, set_tag
from ortoo.common.records.message_fields import RareFields
from ortoo.common.records.sealed_batch import BODY_INFLATED_BYTES_MAX, COPY_RECORD_BYTES_MAX, MESSAGES_MAX, SealedBatch
from ortoo.common.records.wire import read_fields

_PATH = "batch.records"


class RecordBatchView:
    """The messages of one batch, read column by column when needed. Only one thread at a time may use it."""

    __slots__ = ("_block", "_body_offsets", "_columns", "_fields", "body_inflated_bytes", "codec", "count")

    def __init__(self, records: bytes) -> None:
        """Read the head of a serialised RecordBatch; `open_batch` is the usual way."""
        fields = read_fields(memoryview(records), _PATH)
        self._fields = fields
        self.count, self.codec, self.body_inflated_bytes = read_head(fields)
        """Number of messages, compression of the bodies, and their total decompressed size."""
        self._body_offsets = reader.buffer(fields, NUMBERS["body_offsets"], f"{_PATH}.body_offsets")
        reader.check_size(self._body_offsets, self.count + 1, 4, f"{_PATH}.body_offsets")
        self._block: memoryview | None = None
        self._columns: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages())

    def message(self, row: int) -> Message:
        """Return the message of a row; IndexError if there is no such row."""
        at = self._row(row)
        tags, keys = self._column(TAG), self._column(KEYS)
        return Message.of(self.body(at), tags[at] if tags else None, keys[at] if keys else (), self._rare(at))

    def messages(self, rows: Iterable[int] | None = None) -> list[Message]:
        """Return the messages of `rows` in the given order, or the messages of all rows."""
        if rows is not None:
            return [self.message(row) for row in rows]
        count = self.count
        made = list(map(object.__new__, repeat(Message, count)))
        _all(map(set_body, made, self.bodies()))
        _all(map(set_tag, made, self._column(TAG) or repeat(None)))
        _all(map(set_keys, made, self._column(KEYS) or repeat(())))
        _all(map(set_rare, made, map(tuple.__new__, repeat(RareFields), zip(*self._rare_columns(), strict=True))))
        return made

    def body(self, row: int) -> bytes:
        """Return the body of a row; IndexError if there is no such row."""
        start, end = struct.unpack_from("<ii", self._body_offsets, 4 * self._row(row))
        block = self._bodies_block()
        if not 0 <= start <= end <= len(block):
            raise Invalid(
                f"the body of row {row} has the range {start} to {end}, but the bodies have {len(block)} bytes",
                field=f"{_PATH}.body_offsets",
            )
        return bytes(block[start:end])

    def bodies(self) -> list[bytes]:
        """Return all bodies."""
        block = self._bodies_block()
        places = reader.offsets(self._body_offsets, self.count, len(block), f"{_PATH}.body_offsets")
        return list(map(BytesIO(block).read, map(sub, places[1:], places)))  # without bytecode for each body

    def values(self, column: MessageColumn[Value]) -> Sequence[Value]:
        """Return the values of a column, one for each row."""
        return self._column(column) or [column.default] * self.count

    def has(self, column: MessageColumn[Any]) -> bool:
        """Whether the batch has a column, so that messages may have values there."""
        return column.number in self._fields

    def _row(self, row: int) -> int:
        if not -self.count <= row < self.count:
            raise IndexError(f"there is no row {row} in a batch of {self.count} messages")
        return row % self.count

    def _rare(self, at: int) -> RareFields:
        known = self._columns
        if not known.keys() >= _RARE_NUMBERS:
            for column in RARE_COLUMNS:
                self._column(column)
        return RareFields._make([known[number][at] if known[number] else default for number, default in _RARE])

    def _rare_columns(self) -> list[Iterable[Any]]:
        fields, count = self._fields, self.count
        return [
            (self._column(column) if column.number in fields else ()) or repeat(column.default, count)
            for column in RARE_COLUMNS
        ]

    def _column(self, column: MessageColumn[Value]) -> list[Value]:
        """Return a column's values, decoded at the first call; empty if the batch has no such column."""
        number = column.number
        values = self._columns.get(number)
        if values is None:
            values = self._columns[number] = self._decoded(column) if number in self._fields else []
        return values

    def _decoded(self, column: MessageColumn[Value]) -> list[Value]:
        path = f"{_PATH}.{column.name}"
        data = reader.buffer(self._fields, column.number, path)
        return _READERS[column.number](data, self.count, path) if data else []

    def _bodies_block(self) -> memoryview:
        """Return all bodies as one block, decompressed at the first call."""
        if self._block is None:
            self._block = body_block(self._fields, self.codec, self.body_inflated_bytes)
        return self._block


def open_batch(sealed: SealedBatch, *, verify_crc: bool = False) -> RecordBatchView:
    """Open a batch, and check that the count and the size in its envelope agree with the batch inside.

    With `verify_crc` the limits of the batch and its CRC-32C are checked, too. Errors: Invalid, Unsupported.
    """
    if verify_crc:
        sealed.check(single_bytes_max=COPY_RECORD_BYTES_MAX)
    view = RecordBatchView(sealed.records)
    check_envelope(sealed, view.count, view.body_inflated_bytes)
    return view


def check_envelope(sealed: SealedBatch, count: int, inflated_bytes: int) -> None:
    """Raise Invalid unless the fields of `sealed` (the envelope) agree with the batch's head."""
    if count != sealed.count:
        raise Invalid(
            f"the batch holds {count} messages, but its envelope declares {sealed.count}", field="batch.count"
        )
    if inflated_bytes != sealed.body_inflated_bytes:
        raise Invalid(
            f"the bodies have {inflated_bytes} bytes, but the envelope declares {sealed.body_inflated_bytes}",
            field="batch.body_inflated_bytes",
        )


def read_head(fields: reader.Fields) -> tuple[int, Codec, int]:
    """Return count, codec and decompressed size of the bodies, after checking that this code can read the batch."""
    layout = reader.number(fields, NUMBERS["format"], f"{_PATH}.format")
    if layout != FORMAT:
        if not layout:
            raise Invalid("there is no format number; this is not a record batch", field=f"{_PATH}.format")
        raise Unsupported(
            f"the batch has format {layout}; this process reads only {FORMAT}: upgrade this process",
            field=f"{_PATH}.format",
        )
    missing = reader.number(fields, NUMBERS["required_features"], f"{_PATH}.required_features") & ~KNOWN_FEATURES
    if missing:
        raise Unsupported(
            f"reading the batch needs the features {missing:#x}, which this process lacks: upgrade this process",
            field=f"{_PATH}.required_features",
        )
    count = reader.number(fields, NUMBERS["count"], f"{_PATH}.count")
    if not 1 <= count <= MESSAGES_MAX:
        raise Invalid(f"{count} messages; a batch holds 1 to {MESSAGES_MAX}", field=f"{_PATH}.count")
    codec_number = reader.number(fields, NUMBERS["codec"], f"{_PATH}.codec")
    if codec_number > _LAST_CODEC:
        raise Unsupported(f"codec {codec_number} is not supported: upgrade this process", field=f"{_PATH}.codec")
    size = reader.number(fields, NUMBERS["body_inflated_bytes"], f"{_PATH}.body_inflated_bytes")
    if size > BODY_INFLATED_BYTES_MAX:
        raise Invalid(
            f"{size} bytes after decompression; a batch may have {BODY_INFLATED_BYTES_MAX}",
            field=f"{_PATH}.body_inflated_bytes",
        )
    return count, Codec(codec_number or Codec.NONE), size


def body_block(fields: reader.Fields, codec: Codec, inflated_bytes: int) -> memoryview:
    """Return all bodies as one decompressed block of exactly the declared size."""
    data = reader.buffer(fields, NUMBERS["body"], f"{_PATH}.body")
    if codec is not Codec.NONE:
        return memoryview(inflate(data, codec, inflated_bytes, f"{_PATH}.body"))
    if len(data) != inflated_bytes:
        raise Invalid(f"{len(data)} bytes of bodies; the batch declares {inflated_bytes}", field=f"{_PATH}.body")
    return data


_Reader = Callable[[memoryview, int, str], list[Any]]
_BY_LAYOUT: Final[dict[Layout, _Reader]] = {
    Layout.INT8: reader.int8s,
    Layout.INT32: reader.int32s,
    Layout.TIMES: reader.int64s,
    Layout.TEXTS: reader.texts,
    Layout.DICTIONARY: reader.dictionary,
    Layout.LISTS: reader.lists,
    Layout.MAPS: reader.maps,
}


def _reader_of(column: MessageColumn[Any]) -> _Reader:
    read = _BY_LAYOUT[column.layout]
    if column.is_optional_number:
        return lambda data, rows, path: [number or None for number in read(data, rows, path)]
    return read


_READERS: Final = {column.number: _reader_of(column) for column in MESSAGE_COLUMNS}
_RARE: Final = tuple((column.number, column.default) for column in RARE_COLUMNS)
_RARE_NUMBERS: Final = frozenset(column.number for column in RARE_COLUMNS)
_LAST_CODEC = max(Codec)
_all = partial(deque[object], maxlen=0)
"""Exhausts an iterator, as fast as Python can."""

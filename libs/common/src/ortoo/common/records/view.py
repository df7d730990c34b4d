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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records import reader
from ortoo.common.records.columns import FORMAT, KNOWN_FEATURES, NUMBERS
from ortoo.common.records.compression import Codec, inflate
from ortoo.common.records.message import NO_PROPERTIES, Message, RareFields, set_body, set_keys, set_rare, set_tag
from ortoo.common.records.sealed_batch import BODY_INFLATED_BYTES_MAX, COPY_RECORD_BYTES_MAX, MESSAGES_MAX, SealedBatch
from ortoo.common.records.wire import read_fields

_PATH = "batch.records"


class RecordBatchView:
    """The messages of one batch, read column by column when needed. Not for several threads at once."""

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
        self._columns: dict[str, list[object]] = {}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages())

    def message(self, row: int) -> Message:
        """Return the message of a row; IndexError if there is no such row."""
        at = self._row(row)
        tags, keys = self._column("tag"), self._column("keys")
        return Message.of(
            self.body(at),
            tags[at] if tags else None,  # type: ignore[arg-type]
            keys[at] if keys else (),  # type: ignore[arg-type]
            self._rare(at),
        )

    def messages(self, rows: Iterable[int] | None = None) -> list[Message]:
        """Return the messages of all rows, or of some, in the order given."""
        if rows is not None:
            return [self.message(row) for row in rows]
        count = self.count
        made = list(map(object.__new__, repeat(Message, count)))
        _all(map(set_body, made, self.bodies()))
        _all(map(set_tag, made, self._column("tag") or repeat(None)))
        _all(map(set_keys, made, self._column("keys") or repeat(())))
        _all(map(set_rare, made, map(tuple.__new__, repeat(RareFields), zip(*self._rare_columns(), strict=True))))
        return made

    def body(self, row: int) -> bytes:
        """Return the body of a row; IndexError if there is no such row."""
        start, end = struct.unpack_from("<ii", self._body_offsets, 4 * self._row(row))
        block = self._bodies_block()
        if not 0 <= start <= end <= len(block):
            raise Invalid(f"row {row} lies at {start} to {end} of {len(block)} bytes", field=f"{_PATH}.body_offsets")
        return bytes(block[start:end])

    def bodies(self) -> list[bytes]:
        """Return all bodies."""
        block = self._bodies_block()
        places = reader.offsets(self._body_offsets, self.count, len(block), f"{_PATH}.body_offsets")
        data = block.obj if isinstance(block.obj, bytes) and len(block.obj) == len(block) else bytes(block)
        return [data[start:end] for start, end in pairwise(places)]

    def tags(self) -> Sequence[str | None]:
        """Return all tags."""
        return self._column("tag") or [None] * self.count  # type: ignore[return-value]

    def keys(self) -> Sequence[tuple[str, ...]]:
        """Return all messages' keys."""
        return self._column("keys") or [()] * self.count  # type: ignore[return-value]

    def properties(self) -> Sequence[Mapping[str, str]]:
        """Return all messages' properties."""
        return self._column("properties") or [NO_PROPERTIES] * self.count  # type: ignore[return-value]

    def message_groups(self) -> Sequence[str | None]:
        """Return all message groups."""
        return self._column("message_group") or [None] * self.count  # type: ignore[return-value]

    def message_ids(self) -> Sequence[str | None]:
        """Return the ids that producers chose."""
        return self._column("message_id") or [None] * self.count  # type: ignore[return-value]

    def born_at_ms(self) -> Sequence[int | None]:
        """Return the times at which the messages were made."""
        return self._column("born_at_ms") or [None] * self.count  # type: ignore[return-value]

    def deliver_at_ms(self) -> Sequence[int] | None:
        """Return the times from which the messages are visible; None if they are not delayed."""
        return self._column("deliver_at_ms") or None  # type: ignore[return-value]

    def expire_at_ms(self) -> Sequence[int | None] | None:
        """Return the times from which no group gets the messages; None if none of them expires."""
        return self._column("expire_at_ms") or None  # type: ignore[return-value]

    def _row(self, row: int) -> int:
        if not -self.count <= row < self.count:
            raise IndexError(f"row {row} of a batch of {self.count}")
        return row % self.count

    def _rare(self, at: int) -> RareFields:
        known = self._columns
        if not known.keys() >= _RARE_NAMES:
            for name in _RARE_NAMES:
                self._column(name)
        return RareFields._make([known[name][at] if known[name] else default for name, default in _RARE])

    def _rare_columns(self) -> list[Sequence[object]]:
        return [self._column(name) or [default] * self.count for name, default in _RARE]

    def _column(self, name: str) -> list[object]:
        """Return a column's values, decoded at the first call; empty if the batch has no such column."""
        values = self._columns.get(name)
        if values is None:
            path = f"{_PATH}.{name}"
            data = reader.buffer(self._fields, NUMBERS[name], path)
            values = _READERS[name](data, self.count, path) if data else []
            self._columns[name] = values
        return values

    def _bodies_block(self) -> memoryview:
        """Return all bodies as one block, decompressed at the first call."""
        if self._block is None:
            self._block = body_block(self._fields, self.codec, self.body_inflated_bytes)
        return self._block


def open_batch(sealed: SealedBatch, *, verify_crc: bool = False) -> RecordBatchView:
    """Open a batch; with `verify_crc` its envelope is checked too (size, count, CRC-32C).

    Raises Invalid or Unsupported (see the module); the envelope must agree with the batch inside.
    """
    if verify_crc:
        sealed.check(single_bytes_max=COPY_RECORD_BYTES_MAX)
    view = RecordBatchView(sealed.records)
    check_envelope(sealed, view.count, view.body_inflated_bytes)
    return view


def check_envelope(sealed: SealedBatch, count: int, inflated_bytes: int) -> None:
    """Raise Invalid unless the envelope agrees with the batch's head."""
    if count != sealed.count:
        raise Invalid(f"the batch holds {count} messages, its envelope says {sealed.count}", field="batch.count")
    if inflated_bytes != sealed.body_inflated_bytes:
        raise Invalid(
            f"the bodies have {inflated_bytes} bytes, the envelope says {sealed.body_inflated_bytes}",
            field="batch.body_inflated_bytes",
        )


def read_head(fields: reader.Fields) -> tuple[int, Codec, int]:
    """Return count, codec and decompressed size of the bodies, after checking that this code can read the batch."""
    layout = reader.number(fields, NUMBERS["format"], f"{_PATH}.format")
    if layout != FORMAT:
        if not layout:
            raise Invalid("there is no format number; this is not a record batch", field=f"{_PATH}.format")
        raise Unsupported(f"format {layout}; this process reads {FORMAT}: upgrade it", field=f"{_PATH}.format")
    missing = reader.number(fields, NUMBERS["required_features"], f"{_PATH}.required_features") & ~KNOWN_FEATURES
    if missing:
        raise Unsupported(
            f"reading it needs the features {missing:#x}, which this process lacks: upgrade it",
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
            f"{size} bytes inflated; a batch may have {BODY_INFLATED_BYTES_MAX}", field=f"{_PATH}.body_inflated_bytes"
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


_READERS: dict[str, Callable[[memoryview, int, str], list[object]]] = {
    "born_at_ms": reader.int64s,  # type: ignore[dict-item]
    "tag": reader.dictionary,  # type: ignore[dict-item]
    "keys": reader.lists,  # type: ignore[dict-item]
    "message_group": reader.dictionary,  # type: ignore[dict-item]
    "properties": reader.maps,  # type: ignore[dict-item]
    "deliver_at_ms": reader.int64s,  # type: ignore[dict-item]
    "priority": reader.int32s,  # type: ignore[dict-item]
    "body_encoding": reader.int8s,  # type: ignore[dict-item]
    "born_host": reader.dictionary,  # type: ignore[dict-item]
    "message_id": reader.texts,  # type: ignore[dict-item]
    "trace_context": reader.texts,  # type: ignore[dict-item]
    "expire_at_ms": reader.times,  # type: ignore[dict-item]
}
_RARE = tuple((name, RareFields._field_defaults[name]) for name in RareFields._fields)
_RARE_NAMES = frozenset(RareFields._fields)
_LAST_CODEC = max(Codec)
_all = partial(deque[object], maxlen=0)
"""Exhausts an iterator, as fast as Python can."""

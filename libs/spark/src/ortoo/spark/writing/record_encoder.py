"""Rows of one destination as sealed batches, split by size.

The split does not depend on the batches in which rows arrive.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import DELIVER_AT, ROW_BYTES, Layout, MessageColumn, Presence
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import BODY_BYTES_MAX
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX, SealedBatch, crc32c
from ortoo.common.records.writer import batch_bytes
from ortoo.spark.core.columns import MESSAGE_TABLE
from ortoo.spark.writing import column_encoder as encode

_MESSAGE_BYTES = 40
"""Upper estimate of a message's bytes beside body and texts, if it has few columns."""
_STAMPED_BYTES = 16
"""Size of a message's body offset and birth time, and of the bits that tell which texts it has."""
_ROW_BYTES: Final = ROW_BYTES | {Layout.LISTS: 8}  # a text counts as a list of one text
"""Maximum size of a row in a column beside its texts."""
_LAYOUTS: Final = {
    column.name: column.field.layout
    for column in MESSAGE_TABLE
    if column.field and column.field.presence is not Presence.ALWAYS
}
"""The layout of each column that a batch may lack."""
_CUT_BYTES = RECORDS_BYTES_MAX - (16 << 10)
"""Limit of the bytes of a batch."""
_TEXTS: Final = [column.name for column in MESSAGE_TABLE if column.field and not column.field.layout.is_number]


class BatchCutter:
    """Collects the rows of one destination and splits them into batches."""

    def __init__(self, codec: Codec, *, chained: bool = False) -> None:
        """Compress bodies with `codec`. Each of `chained` batches has a digest of all earlier ones."""
        self._codec = codec
        self._chained = chained
        self._digest = 0
        self._rest: Any = None

    def add(self, rows: Any, now_ms: int) -> Iterator[SealedBatch]:
        """Take `rows`, a pyarrow.RecordBatch, and yield the batches that are full."""
        yield from self._cut(rows if self._rest is None else pa.concat_batches([self._rest, rows]), now_ms, last=False)

    def finish(self, now_ms: int) -> Iterator[SealedBatch]:
        """Yield the remaining batches."""
        if self._rest is not None:
            yield from self._cut(self._rest, now_ms, last=True)

    def _cut(self, rows: Any, now_ms: int, *, last: bool) -> Iterator[SealedBatch]:
        count, start = len(rows), 0
        ends = np.cumsum(_sizes(rows))
        while start < count:
            before = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, before + _CUT_BYTES, "right")), start + 1)
            stop = min(stop, start + MESSAGES_MAX)
            if stop >= count and not last and stop - start < MESSAGES_MAX:
                break
            stop = min(stop, count)
            part = rows.slice(start, stop - start)
            batch = sealed_batch(part, now_ms=now_ms, codec=self._codec, preceding_digest=self._digest)
            if self._chained:
                self._digest = _next_digest(self._digest, batch)
            yield batch
            start = stop
        self._rest = rows.slice(start) if start < count else None


def _sizes(rows: Any) -> Any:
    """The approximate size of each row in a batch, as int64 of shape (rows,).

    Errors: Invalid for a body that cannot be sent.
    """
    body = rows.column("body")
    if body.null_count:
        raise Invalid("a body is null; remove such rows with filter(body is not null)", field="body")
    sizes = pc.binary_length(body).to_numpy(zero_copy_only=False).astype("i8")
    if len(sizes) and sizes.min() == 0:
        raise Invalid("a body is empty, expected at least 1 byte; use filter(length(body) > 0)", field="body")
    if len(sizes) and sizes.max() > BODY_BYTES_MAX:
        raise Invalid(f"a body has {sizes.max()} bytes; expected at most {BODY_BYTES_MAX}", field="body")
    names = rows.schema.names
    for name in _TEXTS:
        if name in names:
            sizes = sizes + encode.text_bytes(rows.column(name))
    used = [_LAYOUTS[name] for name in names if name in _LAYOUTS]
    return sizes + max(_MESSAGE_BYTES, _STAMPED_BYTES + sum(_ROW_BYTES[layout] for layout in used))


def _next_digest(digest: int, batch: SealedBatch) -> int:
    """The digest after a batch, whose checksum covers the digest before it."""
    text = digest.to_bytes(8, "little") + batch.records_crc32c.to_bytes(4, "little") + batch.count.to_bytes(4, "little")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") or 1


def sealed_batch(rows: Any, *, now_ms: int, codec: Codec = Codec.NONE, preceding_digest: int = 0) -> SealedBatch:
    """Encode 1 to 4,096 rows as one batch.

    All rows have a delivery time, or no row has one; the same holds for the priority. `now_ms` is the creation time of
    rows without one.
    """
    count = len(rows)
    offsets, body = encode.block(rows.column("body"))
    columns = _columns_behind_body(rows, now_ms)
    places = offsets.astype("<i4").tobytes()
    records = batch_bytes(count, places, (body,), len(body), columns, codec, preceding_digest)
    delayed = any(column is DELIVER_AT for column, _ in columns)
    return SealedBatch(records, crc32c(records), count, len(body), delayed=delayed)


def _columns_behind_body(rows: Any, now_ms: int) -> list[tuple[MessageColumn[Any], bytes]]:
    """The columns after the body, in the order of their field numbers."""
    names, written = rows.schema.names, []
    for column in MESSAGE_TABLE:
        field = column.field
        assert field is not None, "these are the columns of a record batch"
        if column.name in names:
            data = _WRITERS[field.layout](rows.column(column.name), field, now_ms)
        else:
            data = np.full(len(rows), now_ms, "<i8").tobytes() if field.presence is Presence.ALWAYS else b""
        if data:
            written.append((field, data))
    return written


def _numbers(array: Any, field: MessageColumn[Any], now_ms: int) -> bytes:
    """A column of numbers; b"" if no row has a number. Errors: Invalid for a number that a message must not have."""
    if field.presence is not Presence.ALWAYS and array.null_count == len(array):
        return b""
    numbers = encode.numbers(array, field.layout)
    if array.null_count < len(array):
        limits = pc.min_max(numbers).as_py()
        for number in limits.values():
            if not field.least <= number <= field.largest:
                raise Invalid(f"{number} is not from {field.least} to {field.largest}", field=field.name)
    missing = now_ms if field.presence is Presence.ALWAYS else 0
    return encode.number_bytes(numbers.fill_null(missing), field.layout)


_WRITERS: Final[dict[Layout, Callable[[Any, MessageColumn[Any], int], bytes]]] = {
    Layout.INT8: _numbers,
    Layout.INT32: _numbers,
    Layout.TIMES: _numbers,
    Layout.TEXTS: lambda array, field, now_ms: encode.texts(array),
    Layout.DICTIONARY: lambda array, field, now_ms: encode.dictionary(array),
    Layout.LISTS: lambda array, field, now_ms: encode.lists(array),
    Layout.MAPS: lambda array, field, now_ms: encode.maps(array),
}

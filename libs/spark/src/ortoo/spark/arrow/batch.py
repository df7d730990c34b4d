"""A batch of messages as an Arrow record batch, column by column, without loops over rows.

There is one exception: bodies that producers gzipped individually are inflated one by one.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ortoo.client import ReceivedBatch
from ortoo.common.errors import Invalid
from ortoo.common.records.columns import BODY_ENCODING, MESSAGE_ID, NUMBERS, Layout
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import BODY_BYTES_MAX, BODY_GZIP
from ortoo.common.records.reader import Fields, buffer
from ortoo.common.records.sealed_batch import COPY_RECORD_BYTES_MAX
from ortoo.common.records.view import body_block, read_head
from ortoo.common.records.wire import read_fields
from ortoo.spark.arrow import buffers as arrow
from ortoo.spark.core.columns import BY_NAME

_PATH = "batch.records"
_INFLATED_BYTES_MAX = 16 * BODY_BYTES_MAX
"""Limit of one inflated body; a larger one is treated as an attack."""


class BatchDecoder:
    """Converts received batches to Arrow batches of one schema."""

    def __init__(self, schema: Any) -> None:
        """`schema` is the pyarrow schema that Spark expects."""
        self.schema = schema
        self._names: Sequence[str] = schema.names
        fields = {name: BY_NAME[name].field for name in self._names if name not in _PLACE}
        used_fields = {name if field is None else field.name for name, field in fields.items()}
        self.fields: tuple[str, ...] = ("count", *sorted(used_fields))
        """The fields of a record batch that are used, for the fetch request."""

    def decode(self, received: ReceivedBatch) -> Any:
        """Decode the rows at `received.offsets` to a pyarrow.RecordBatch. Errors: Invalid, Unsupported."""
        sealed = received.sealed
        sealed.check(single_bytes_max=COPY_RECORD_BYTES_MAX)
        fields = read_fields(memoryview(sealed.records), _PATH)
        count, codec, inflated_bytes = read_head(fields)
        if count != sealed.count:
            raise Invalid(
                f"the batch holds {count} messages, but its envelope has the count {sealed.count}", field="batch.count"
            )
        offsets = received.offsets
        rows = self._rows(offsets, received.first_offset, count)
        columns = [
            _bodies(fields, codec, inflated_bytes, rows, count)
            if name == "body"
            else self._column(name, kind, received, fields, rows, count)
            for name, kind in zip(self._names, self.schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @staticmethod
    def _rows(offsets: Sequence[int], first_offset: int, count: int) -> Any:
        """The selected rows of the columns: None for all rows, a slice, or an array of indices."""
        if len(offsets) == count:
            return None
        begin, end = offsets[0] - first_offset, offsets[-1] - first_offset + 1
        if end - begin == len(offsets):
            return slice(begin, end)
        return arrow.of_numpy(np.subtract(offsets, first_offset, dtype="<i8"))

    def _column(self, name: str, kind: Any, received: ReceivedBatch, fields: Fields, rows: Any, count: int) -> Any:
        if name in _PLACE:
            return _PLACE[name](received, kind)
        field = BY_NAME[name].field
        assert field is not None, "the body and the place of a message are read otherwise"
        path = f"{_PATH}.{field.name}"
        data = buffer(fields, field.number, path)
        if field is MESSAGE_ID:
            return _message_ids(received, data, rows, count)
        if not len(data):
            return arrow.empty_column(len(received), kind, field.default)
        column = _select_rows(_DECODERS[field.layout](data, count, path), rows)
        if field.is_optional_number:
            column = pc.if_else(pc.not_equal(column, pa.scalar(0, column.type)), column, None)
        return column if column.type == kind else column.cast(kind)


def _select_rows(column: Any, rows: Any) -> Any:
    if rows is None:
        return column
    return column.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else column.take(rows)


def _offsets(received: ReceivedBatch, kind: Any) -> Any:
    offsets = received.offsets
    if isinstance(offsets, range):
        return pa.arange(offsets.start, offsets.stop).cast(kind)
    return arrow.of_numpy(np.array(offsets, "<i8"), kind)


def _stored_at(received: ReceivedBatch, kind: Any) -> Any:
    if received.row_stored_at_ms:
        times = arrow.times(memoryview(received.row_stored_at_ms), len(received), "row_stored_at_ms")
        if times.null_count:
            raise Invalid("a message has an impossible storage time", field="row_stored_at_ms")
        return times.cast(kind)
    return arrow.repeated(received.stored_at_ms * 1000, len(received), kind)


def _message_ids(received: ReceivedBatch, data: memoryview, rows: Any, count: int) -> Any:
    queue, offsets = received.queue, received.offsets
    prefix = f"{received.topic_id:016x}-{queue.enode}-{queue.queue_id}-"
    if isinstance(offsets, range):
        made = arrow.numbered(prefix, offsets.start, len(offsets))
    else:
        made = arrow.joined(prefix, _offsets(received, pa.int64()).cast(pa.string()))
    if not len(data):
        return made
    return pc.coalesce(_select_rows(arrow.texts(data, count, f"{_PATH}.{MESSAGE_ID.name}"), rows), made)


def _bodies(fields: Fields, codec: Codec, inflated_bytes: int, rows: Any, count: int) -> Any:
    block = body_block(fields, codec, inflated_bytes)
    places = buffer(fields, NUMBERS["body_offsets"], f"{_PATH}.body_offsets")
    return _ungzipped(_select_rows(arrow.binary(places, block, count, f"{_PATH}.body"), rows), fields, rows, count)


def _ungzipped(body: Any, fields: Fields, rows: Any, count: int) -> Any:
    path = f"{_PATH}.{BODY_ENCODING.name}"
    data = buffer(fields, BODY_ENCODING.number, path)
    if not len(data):
        return body
    gzipped = pc.equal(_select_rows(arrow.numbers(data, count, pa.int8(), path), rows), BODY_GZIP)
    inflated = [_inflated(each) for each in body.filter(gzipped).to_pylist()]
    return pc.replace_with_mask(body, gzipped, pa.array(inflated, pa.binary()))


def _inflated(body: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        data = reader.decompress(body, _INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise Invalid(f"a body is marked as gzipped, but cannot be inflated: {error}", field=f"{_PATH}.body") from None
    if not reader.eof:
        raise Invalid(f"a gzipped body is truncated, or exceeds {_INFLATED_BYTES_MAX} bytes", field=f"{_PATH}.body")
    return data


_PLACE: Final[dict[str, Callable[[ReceivedBatch, Any], Any]]] = {
    "topic": lambda received, kind: arrow.repeated(received.queue.topic, len(received), kind),
    "enode": lambda received, kind: arrow.repeated(received.queue.enode, len(received), kind),
    "queue_id": lambda received, kind: arrow.repeated(received.queue.queue_id, len(received), kind),
    "offset": _offsets,
    "stored_at": _stored_at,
}
"""Columns with the position of a message."""
_DECODERS: Final[dict[Layout, Callable[[memoryview, int, str], Any]]] = {
    Layout.INT8: lambda data, rows, path: arrow.numbers(data, rows, pa.int8(), path),
    Layout.INT32: lambda data, rows, path: arrow.numbers(data, rows, pa.int32(), path),
    Layout.TIMES: arrow.times,
    Layout.TEXTS: arrow.texts,
    Layout.DICTIONARY: arrow.dictionary,
    Layout.LISTS: arrow.lists,
    Layout.MAPS: arrow.maps,
}

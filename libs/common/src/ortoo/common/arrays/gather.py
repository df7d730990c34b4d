"""Writing a batch of some of another batch's rows.

    sealed, rows = narrowed(opened, rows)

Either the original batch comes back, or, when fewer than half of its rows matched and its bodies lie uncompressed, a
new batch of just those. In both cases `rows` says which rows of the *original* batch they are, so a message's offset is
first_offset + rows[i]: a reader that gets as many rows as the batch has messages takes all of them.
"""

import numpy as np
from numpy.typing import NDArray

from ortoo.common.arrays.message_table import MessageColumns, MessageTable, taken
from ortoo.common.arrays.opened_batch import (
    DictionaryArrays,
    Int32s,
    ListArrays,
    MapArrays,
    Mask,
    OpenedBatch,
    TextArrays,
)
from ortoo.common.records.columns import FORMAT, NUMBERS
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.common.records.wire import bytes_field, bytes_head, number_field


def narrowed(opened: OpenedBatch, rows: Int32s) -> tuple[SealedBatch, Int32s]:
    """Return a batch that holds at least `rows` of `opened`, and `rows`; see the module for how to read them."""
    if len(rows) == 0 or 2 * len(rows) >= opened.count or opened.is_compressed or opened.has_unknown_columns:
        return opened.sealed, rows
    return gathered(opened, rows), rows


def gathered(columns: MessageColumns, rows: Int32s) -> SealedBatch:
    """Make an uncompressed batch of some rows, 1 or more; idempotence does not travel with it."""
    return written(taken(columns, rows))


def written(table: MessageTable) -> SealedBatch:
    """Make an uncompressed batch of a table of at most as many messages as a batch may have."""
    number = NUMBERS
    parts: list[bytes | memoryview] = [
        number_field(number["format"], FORMAT),
        number_field(number["count"], table.count),
        number_field(number["codec"], Codec.NONE),
        number_field(number["body_inflated_bytes"], len(table.body)),
        bytes_field(number["body_offsets"], table.body_offsets.tobytes()),
        bytes_head(number["body"], len(table.body)),
        table.body,
        _fixed("born_at_ms", table.born_at_ms),
        _nested("tag", _dictionary(table.tag)),
        _nested("keys", _list(table.keys)),
        _nested("message_group", _dictionary(table.message_group)),
        _nested("properties", _map(table.properties)),
        _fixed("deliver_at_ms", table.deliver_at_ms),
        _fixed("priority", table.priority),
        _fixed("body_encoding", table.body_encoding),
        _nested("born_host", _dictionary(table.born_host)),
        _nested("message_id", _text(table.message_id)),
        _nested("trace_context", _text(table.trace_context)),
        _fixed("expire_at_ms", table.expire_at_ms),
    ]
    records = b"".join(parts)
    delayed = table.deliver_at_ms is not None
    return SealedBatch(records, crc32c(records), table.count, len(table.body), delayed=delayed)


def _fixed(name: str, numbers: NDArray[np.generic] | None) -> bytes:
    return b"" if numbers is None else bytes_field(NUMBERS[name], numbers.tobytes())


def _nested(name: str, column: bytes) -> bytes:
    return bytes_field(NUMBERS[name], column)


def _text(texts: TextArrays | None) -> bytes:
    if texts is None:
        return b""
    data = bytes_field(2, texts.offsets.tobytes()) + bytes_field(3, bytes(texts.data))
    return _validity(texts.valid) + data


def _dictionary(column: DictionaryArrays | None) -> bytes:
    if column is None:
        return b""
    dictionary = _text(column.texts)
    codes = bytes_field(2, column.codes.tobytes())
    return b"".join((_validity(column.valid), codes, bytes_head(3, len(dictionary)), dictionary))


def _list(column: ListArrays | None) -> bytes:
    if column is None:
        return b""
    values = _text(column.texts)
    return bytes_field(1, column.offsets.tobytes()) + bytes_head(2, len(values)) + values


def _map(column: MapArrays | None) -> bytes:
    if column is None:
        return b""
    names, values = _dictionary(column.names), _text(column.values)
    parts = (bytes_field(1, column.offsets.tobytes()), bytes_head(2, len(names)), names, bytes_head(3, len(values)))
    return b"".join((*parts, values))


def _validity(valid: Mask | None) -> bytes:
    return b"" if valid is None else bytes_field(1, np.packbits(valid, bitorder="little").tobytes())

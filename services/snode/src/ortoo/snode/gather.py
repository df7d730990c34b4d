"""Making a smaller batch of the rows that a filter left, when that saves the reader bytes.

    sealed, rows = narrowed(opened, rows)

Either the original batch comes back, or, when fewer than half of its rows matched and its bodies lie uncompressed, a
new batch of just those. In both cases `rows` says which rows of the *original* batch they are, so a message's offset is
first_offset + rows[i]: a reader that gets as many rows as the batch has messages takes all of them.
"""

import numpy as np
from numpy.typing import NDArray

from ortoo.common.compression import Codec
from ortoo.common.record_columns import FORMAT, NUMBERS
from ortoo.common.record_wire import bytes_field, bytes_head, number_field
from ortoo.common.sealed_batch import SealedBatch, crc32c
from ortoo.snode.opened_batch import DictionaryArrays, Int32s, ListArrays, MapArrays, Mask, OpenedBatch, TextArrays

_SLICED_BYTES = 48
"""From this average size on, slicing row by row beats copying by an index of single bytes."""


def narrowed(opened: OpenedBatch, rows: Int32s) -> tuple[SealedBatch, Int32s]:
    """Return a batch that holds at least `rows` of `opened`, and `rows`; see the module for how to read them."""
    if len(rows) == 0 or 2 * len(rows) >= opened.count or opened.is_compressed or opened.has_unknown_columns:
        return opened.sealed, rows
    return gathered(opened, rows), rows


def gathered(opened: OpenedBatch, rows: Int32s) -> SealedBatch:
    """Make an uncompressed batch of some rows, 1 or more, strictly rising; idempotence does not travel with it."""
    offsets, body = _ranges(opened.body_offsets, opened.body, rows)
    number, encoding = NUMBERS, opened.body_encoding
    parts = [
        number_field(number["format"], FORMAT),
        number_field(number["count"], len(rows)),
        number_field(number["codec"], Codec.NONE),
        number_field(number["body_inflated_bytes"], len(body)),
        bytes_field(number["body_offsets"], offsets),
        bytes_head(number["body"], len(body)),
        body,
        _fixed("born_at_ms", opened.born_at_ms, rows),
        _nested("tag", _dictionary(opened.tag, rows)),
        _nested("keys", _list(opened.keys, rows)),
        _nested("message_group", _dictionary(opened.message_group, rows)),
        _nested("properties", _map(opened.properties, rows)),
        _fixed("deliver_at_ms", opened.deliver_at_ms, rows),
        _fixed("priority", opened.priority, rows),
        _fixed("body_encoding", encoding if encoding is not None and encoding[rows].any() else None, rows),
        _nested("born_host", _dictionary(opened.born_host, rows)),
        _nested("message_id", _text(opened.message_id, rows)),
        _nested("trace_context", _text(opened.trace_context, rows)),
    ]
    records = b"".join(parts)
    delayed = opened.deliver_at_ms is not None
    return SealedBatch(records, crc32c(records), len(rows), len(body), delayed=delayed)


def _fixed(name: str, numbers: NDArray[np.generic] | None, rows: Int32s) -> bytes:
    return b"" if numbers is None else bytes_field(NUMBERS[name], numbers[rows].tobytes())


def _nested(name: str, column: bytes) -> bytes:
    return bytes_field(NUMBERS[name], column)


def _text(texts: TextArrays | None, rows: Int32s) -> bytes:
    if texts is None or (texts.valid is not None and not texts.valid[rows].any()):
        return b""
    offsets, data = _ranges(texts.offsets, texts.data, rows)
    return _validity(texts.valid, rows) + bytes_field(2, offsets) + bytes_field(3, data)


def _dictionary(column: DictionaryArrays | None, rows: Int32s) -> bytes:
    """Keep the texts that these rows use, in order of first use."""
    if column is None or (column.valid is not None and not column.valid[rows].any()):
        return b""
    codes = column.codes[rows]
    used = codes if column.valid is None else codes[column.valid[rows]]
    distinct, first = np.unique(used, return_index=True)
    kept = distinct[np.argsort(first)]
    places = np.zeros(max(column.texts.rows, 1), "<i4")
    places[kept] = np.arange(len(kept), dtype="<i4")
    codes = places[codes] if column.valid is None else places[codes] * column.valid[rows]
    offsets, data = _ranges(column.texts.offsets, column.texts.data, kept)
    dictionary = bytes_field(2, offsets) + bytes_field(3, data)
    return (
        _validity(column.valid, rows)
        + bytes_field(2, codes.astype("<i4").tobytes())
        + bytes_head(3, len(dictionary))
        + dictionary
    )


def _list(column: ListArrays | None, rows: Int32s) -> bytes:
    if column is None:
        return b""
    offsets, entries = _entries(column.offsets, rows)
    if not len(entries):
        return b""
    values = _text(column.texts, entries)
    return bytes_field(1, offsets) + bytes_head(2, len(values)) + values


def _map(column: MapArrays | None, rows: Int32s) -> bytes:
    if column is None:
        return b""
    offsets, entries = _entries(column.offsets, rows)
    if not len(entries):
        return b""
    names, values = _dictionary(column.names, entries), _text(column.values, entries)
    return bytes_field(1, offsets) + bytes_head(2, len(names)) + names + bytes_head(3, len(values)) + values


def _validity(valid: Mask | None, rows: Int32s) -> bytes:
    if valid is None or valid[rows].all():
        return b""
    return bytes_field(1, np.packbits(valid[rows], bitorder="little").tobytes())


def _entries(offsets: Int32s, rows: Int32s) -> tuple[bytes, Int32s]:
    """Return the offsets of the kept lists, and which entries they hold."""
    starts = offsets[rows]
    sizes = offsets[rows + 1] - starts
    return _sums(sizes).tobytes(), _indices(starts, sizes)


def _ranges(offsets: Int32s, data: memoryview, rows: Int32s) -> tuple[bytes, bytes]:
    """Return offsets and data of the kept rows of a variable-width column."""
    starts = offsets[rows]
    ends = offsets[rows + 1]
    sizes = ends - starts
    sums = _sums(sizes)
    total = int(sums[-1])
    if total >= _SLICED_BYTES * len(rows):
        kept = b"".join(map(data.__getitem__, map(slice, starts.tolist(), ends.tolist())))
    elif total:
        kept = np.frombuffer(data, np.uint8)[_indices(starts, sizes)].tobytes()
    else:
        kept = b""
    return sums.tobytes(), kept


def _sums(sizes: Int32s) -> Int32s:
    """Return where each row starts once the rows lie close together, and where the last ends."""
    sums = np.zeros(len(sizes) + 1, "<i4")
    np.cumsum(sizes, out=sums[1:])
    return sums


def _indices(starts: Int32s, sizes: Int32s) -> Int32s:
    """Return every number of the ranges starts[i]..starts[i] + sizes[i], one range after another."""
    sums = _sums(sizes)
    return np.arange(sums[-1], dtype=np.int32) + np.repeat(starts - sums[:-1], sizes)

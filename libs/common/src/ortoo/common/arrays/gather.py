"""Copy some rows of a batch into a new batch.

    sealed, rows = narrow(opened, rows)

A new batch is made when fewer than half of the rows matched and the bodies are not compressed. Otherwise the original
batch is returned. In both cases `rows` are the row numbers in the *original* batch, so that a message's offset is
first_offset + rows[i]. If the batch has as many messages as `rows` has numbers, its message i is row rows[i].
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ortoo.common.arrays.few_rows import FEW_ROWS_MAX, gather_few
from ortoo.common.arrays.message_table import MessageColumns, MessageTable, take_rows
from ortoo.common.arrays.opened_batch import (
    DictionaryArrays,
    Int32s,
    ListArrays,
    MapArrays,
    Mask,
    OpenedBatch,
    TextArrays,
)
from ortoo.common.errors import Invalid
from ortoo.common.records.columns import DELIVER_AT, MESSAGE_COLUMNS, Layout, by_column
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.common.records.wire import nested
from ortoo.common.records.writer import batch_bytes


def narrow(opened: OpenedBatch, rows: Int32s, columns: frozenset[int] = frozenset()) -> tuple[SealedBatch, Int32s]:
    """Return a batch that holds at least the rows `rows` of `opened`, and `rows` unchanged.

    Columns whose numbers are not in `columns` may be left out. If `columns` is empty, all columns are kept.
    """
    return (gather(opened, rows, columns) if is_narrow(opened, rows) else opened.sealed), rows


def is_narrow(opened: OpenedBatch, rows: Int32s) -> bool:
    """Whether `narrow` copies `rows` into a new batch: the rows are few, and the bodies are not compressed."""
    return 0 < 2 * len(rows) < opened.count and not opened.is_compressed and not opened.has_unknown_columns


def gather(table: MessageColumns, rows: Int32s, columns: frozenset[int] = frozenset()) -> SealedBatch:
    """Make an uncompressed batch of one or more rows, without producer id and sequence.

    `columns` are the numbers of the columns to copy; an empty set means all columns.
    """
    if len(rows) <= FEW_ROWS_MAX and isinstance(table, OpenedBatch) and not table.is_compressed:
        # Where the columns do not fit together, the checks of the arrays below raise the error.
        with contextlib.suppress(Invalid, IndexError, TypeError):
            return gather_few(table.fields, rows.tolist(), columns)
    return write_table(take_rows(table, rows, columns))


def write_table(table: MessageTable) -> SealedBatch:
    """Make an uncompressed batch of a table. The table has at most as many messages as a batch may have."""
    arrays = ((column, getattr(table, column.name)) for column in MESSAGE_COLUMNS)
    there = [(column, _WRITERS[column.number](held)) for column, held in arrays if held is not None]
    records = batch_bytes(table.count, table.body_offsets.tobytes(), (table.body,), len(table.body), there)
    delayed = any(column is DELIVER_AT for column, _ in there)
    return SealedBatch(records, crc32c(records), table.count, len(table.body), delayed=delayed)


def _text(texts: TextArrays) -> bytes:
    return nested(_bitmap(texts.valid), texts.offsets.tobytes(), texts.data)


def _dictionary(column: DictionaryArrays) -> bytes:
    return nested(_bitmap(column.valid), column.codes.tobytes(), _text(column.texts))


def _list(column: ListArrays) -> bytes:
    return nested(column.offsets.tobytes(), _text(column.texts))


def _map(column: MapArrays) -> bytes:
    return nested(column.offsets.tobytes(), _dictionary(column.names), _text(column.values))


def _bitmap(valid: Mask | None) -> bytes:
    return b"" if valid is None else np.packbits(valid, bitorder="little").tobytes()


_LAYOUT_WRITERS: Final[Mapping[Layout, Callable[[Any], bytes]]] = {
    Layout.INT8: np.ndarray.tobytes,
    Layout.INT32: np.ndarray.tobytes,
    Layout.TIMES: np.ndarray.tobytes,
    Layout.TEXTS: _text,
    Layout.DICTIONARY: _dictionary,
    Layout.LISTS: _list,
    Layout.MAPS: _map,
}
_WRITERS: Final = by_column(_LAYOUT_WRITERS)

"""Messages as columns in memory: rows of one or several batches, in any order.

    table = take_rows(opened, rows)           # rows of an opened batch, or of another table
    table = concat_tables([table, other])     # one after another

A table may have more messages than a batch. It has the attributes of `OpenedBatch`: columns that no row uses are None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ortoo.common.arrays.column_attributes import ColumnAttributes
from ortoo.common.arrays.opened_batch import (
    DictionaryArrays,
    Int32s,
    ListArrays,
    MapArrays,
    Mask,
    OpenedBatch,
    TextArrays,
)
from ortoo.common.records.columns import MESSAGE_COLUMNS, Layout, MessageColumn, Presence, by_column

_SLICED_BYTES = 48
"""From this average size on, slicing row by row is faster than copying by an index of single bytes."""


@dataclass(frozen=True, slots=True)
class MessageTable(ColumnAttributes):
    """Messages as a table: the arrays of each column, with one row for each message."""

    body_offsets: Int32s
    body: memoryview
    columns: Mapping[str, Any]
    """The arrays of each column that a row uses, by name."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.body_offsets) - 1

    @property
    def size_bytes(self) -> int:
        """The approximate size of the table's columns."""
        return self.body_offsets.nbytes + self.body.nbytes + sum(map(_size, self.columns.values()))

    def with_column(self, column: MessageColumn[Any], arrays: Any) -> "MessageTable":
        """The same messages with other values in one column."""
        return replace(self, columns={**self.columns, column.name: arrays})


def _attribute(column: MessageColumn[Any]) -> property:
    return property(lambda table: table.columns.get(column.name))


for _column in MESSAGE_COLUMNS:
    setattr(MessageTable, _column.name, _attribute(_column))


def _size(column: Any) -> int:
    if isinstance(column, np.ndarray | memoryview):
        return column.nbytes
    parts = [getattr(column, name) for name in column.__slots__]
    return sum([_size(part) for part in parts if part is not None])


MessageColumns = OpenedBatch | MessageTable


def take_rows(columns: MessageColumns, rows: Int32s, numbers: frozenset[int] = frozenset()) -> MessageTable:
    """Copy some rows, in the order of `rows`: the body and the columns with these `numbers` (empty = all columns)."""
    offsets, body = _ranges(columns.body_offsets, columns.body, rows)
    taken: dict[str, Any] = {}
    for column in MESSAGE_COLUMNS:
        if numbers and column.number not in numbers:
            continue
        arrays = getattr(columns, column.name)
        if arrays is not None and (some := _TAKEN[column.number](arrays, rows)) is not None:
            taken[column.name] = some
    return MessageTable(offsets, body, taken)


def concat_tables(tables: Sequence[MessageTable]) -> MessageTable:
    """Concatenate tables. Either all of them have priorities, or none has."""
    if len(tables) == 1:
        return tables[0]
    counts = [table.count for table in tables]

    columns: dict[str, Any] = {}
    for column in MESSAGE_COLUMNS:
        parts = [table.columns.get(column.name) for table in tables]
        if any(part is not None for part in parts):
            columns[column.name] = _JOINED[column.number](parts, counts)
    return MessageTable(
        _joined_offsets([table.body_offsets for table in tables]),
        memoryview(b"".join([table.body for table in tables])),
        columns,
    )


# some rows


def _fixed(numbers: Any, rows: Int32s) -> Any:
    return numbers[rows]


def _fixed_if_used(numbers: Any, rows: Int32s) -> Any:
    """The numbers of these rows; None if all of them are zero."""
    kept = numbers[rows]
    return kept if kept.any() else None


def _text(texts: TextArrays, rows: Int32s) -> TextArrays | None:
    if texts.valid is not None and not texts.valid[rows].any():
        return None
    return TextArrays(*_ranges(texts.offsets, texts.data, rows), _valid(texts.valid, rows))


def _dictionary(column: DictionaryArrays, rows: Int32s) -> DictionaryArrays | None:
    """Keep the texts that these rows use, in order of first use."""
    if column.valid is not None and not column.valid[rows].any():
        return None
    codes = column.codes[rows]
    used = codes if column.valid is None else codes[column.valid[rows]]
    distinct, first = np.unique(used, return_index=True)
    kept = distinct[np.argsort(first)]
    places = np.zeros(max(column.texts.rows, 1), "<i4")
    places[kept] = np.arange(len(kept), dtype="<i4")
    codes = places[codes] if column.valid is None else places[codes] * column.valid[rows]
    texts = TextArrays(*_ranges(column.texts.offsets, column.texts.data, kept), None)
    return DictionaryArrays(codes.astype("<i4"), texts, _valid(column.valid, rows))


def _list(column: ListArrays, rows: Int32s) -> ListArrays | None:
    offsets, entries = _entries(column.offsets, rows)
    texts = _text(column.texts, entries) if len(entries) else None
    return ListArrays(offsets, texts) if texts is not None else None


def _map(column: MapArrays, rows: Int32s) -> MapArrays | None:
    offsets, entries = _entries(column.offsets, rows)
    if not len(entries):
        return None
    names, values = _dictionary(column.names, entries), _text(column.values, entries)
    assert names is not None
    assert values is not None
    return MapArrays(offsets, names, values)


def _valid(valid: Mask | None, rows: Int32s) -> Mask | None:
    return None if valid is None or valid[rows].all() else valid[rows]


def _entries(offsets: Int32s, rows: Int32s) -> tuple[Int32s, Int32s]:
    """Return the offsets of the kept lists and the indexes of their entries."""
    starts = offsets[rows]
    sizes = offsets[rows + 1] - starts
    return _sums(sizes), _indices(starts, sizes)


def _ranges(offsets: Int32s, data: memoryview, rows: Int32s) -> tuple[Int32s, memoryview]:
    """Return offsets and data of the kept rows of a variable-width column."""
    starts = offsets[rows]
    ends = offsets[rows + 1]
    sizes = ends - starts
    sums = _sums(sizes)
    total = int(sums[-1])
    if total and int(ends[-1]) - int(starts[0]) == total and (starts[1:] == ends[:-1]).all():
        kept = bytes(data[int(starts[0]) : int(ends[-1])])  # one piece; a copy, so that the rest can be freed
    elif total >= _SLICED_BYTES * len(rows):
        kept = b"".join(map(data.__getitem__, map(slice, starts.tolist(), ends.tolist())))
    elif total:
        kept = np.frombuffer(data, np.uint8)[_indices(starts, sizes)].tobytes()
    else:
        kept = b""
    return sums, memoryview(kept)


def _sums(sizes: Int32s) -> Int32s:
    """Return the offsets of rows that are packed without gaps: the start of each row and the end of the last row."""
    sums = np.zeros(len(sizes) + 1, "<i4")
    sizes.cumsum(out=sums[1:])
    return sums


def _indices(starts: Int32s, sizes: Int32s) -> Int32s:
    """Return the numbers from starts[i] to starts[i] + sizes[i] (exclusive) of each i, one range after another."""
    sums = _sums(sizes)
    return np.arange(sums[-1], dtype=np.int32) + np.repeat(starts - sums[:-1], sizes)


# one after another


def _joined_fixed(parts: list[Any], counts: list[int]) -> Any:
    kind = next(part.dtype for part in parts if part is not None)
    return np.concatenate(
        [np.zeros(count, kind) if part is None else part for part, count in zip(parts, counts, strict=True)]
    )


def _joined_offsets(parts: Sequence[Int32s]) -> Int32s:
    return _sums(np.concatenate([np.diff(part) for part in parts]))


def _joined_valid(parts: Sequence[Any], counts: Sequence[int]) -> Mask | None:
    """The validity of all rows of the parts; the rows of an absent part (None) have no value."""
    masks = [
        np.zeros(count, np.bool_) if part is None else np.ones(count, np.bool_) if part.valid is None else part.valid
        for part, count in zip(parts, counts, strict=True)
    ]
    valid = np.concatenate(masks)
    return None if valid.all() else valid


def _joined_texts(parts: Sequence[TextArrays | None], counts: Sequence[int]) -> TextArrays:
    offsets = [np.zeros(n + 1, "<i4") if part is None else part.offsets for part, n in zip(parts, counts, strict=True)]
    data = memoryview(b"".join([part.data for part in parts if part is not None]))
    return TextArrays(_joined_offsets(offsets), data, _joined_valid(parts, counts))


def _joined_dictionaries(parts: Sequence[DictionaryArrays | None], counts: Sequence[int]) -> DictionaryArrays:
    """Join dictionary columns: the common dictionary has each text once, and the codes are changed accordingly."""
    known: dict[bytes, int] = {}
    codes = []
    for part, count in zip(parts, counts, strict=True):
        if part is None:
            codes.append(np.zeros(count, "<i4"))
            continue
        ends = part.texts.offsets.tolist()
        texts = [bytes(part.texts.data[start:end]) for start, end in pairwise(ends)]
        places = np.array([known.setdefault(text, len(known)) for text in texts], "<i4")
        moved = places[part.codes]
        codes.append(moved if part.valid is None else (moved * part.valid).astype("<i4"))
    sizes = np.fromiter(map(len, known), "<i4", len(known))
    texts_of_all = TextArrays(_sums(sizes), memoryview(b"".join(known)), None)
    return DictionaryArrays(np.concatenate(codes), texts_of_all, _joined_valid(parts, counts))


def _joined_lists(parts: Sequence[ListArrays | None], counts: Sequence[int]) -> ListArrays:
    offsets = [np.zeros(n + 1, "<i4") if part is None else part.offsets for part, n in zip(parts, counts, strict=True)]
    there = [part.texts for part in parts if part is not None]
    return ListArrays(_joined_offsets(offsets), _joined_texts(there, [texts.rows for texts in there]))


def _joined_maps(parts: Sequence[MapArrays | None], counts: Sequence[int]) -> MapArrays:
    offsets = [np.zeros(n + 1, "<i4") if part is None else part.offsets for part, n in zip(parts, counts, strict=True)]
    there = [part for part in parts if part is not None]
    entries = [part.values.rows for part in there]
    return MapArrays(
        _joined_offsets(offsets),
        _joined_dictionaries([part.names for part in there], entries),
        _joined_texts([part.values for part in there], entries),
    )


_Take = Callable[[Any, Int32s], Any]
_TEXTS_TAKEN: Final[dict[Layout, _Take]] = {
    Layout.TEXTS: _text,
    Layout.DICTIONARY: _dictionary,
    Layout.LISTS: _list,
    Layout.MAPS: _map,
}


def _take_of(column: MessageColumn[Any]) -> _Take:
    """The function that copies some rows of a column; it returns None if none of these rows has a value."""
    if column.presence in (Presence.ALWAYS, Presence.ALL_OR_NONE):
        return _TEXTS_TAKEN.get(column.layout, _fixed)
    return _TEXTS_TAKEN.get(column.layout, _fixed_if_used)


_TAKEN: Final = {column.number: _take_of(column) for column in MESSAGE_COLUMNS}
_JOINED: Final = by_column(
    {
        Layout.INT8: _joined_fixed,
        Layout.INT32: _joined_fixed,
        Layout.TIMES: _joined_fixed,
        Layout.TEXTS: _joined_texts,
        Layout.DICTIONARY: _joined_dictionaries,
        Layout.LISTS: _joined_lists,
        Layout.MAPS: _joined_maps,
    }
)
"""Concatenates the parts of a column."""

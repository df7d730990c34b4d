"""Copy a few rows of a batch into a new batch without numpy, whose calls would cost more than so few rows.

    sealed = gather_few(opened.fields, [3, 700])       # the same bytes as `gather` makes

A filter that selects one message in a hundred spends most of its time here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ortoo.common.errors import Invalid
from ortoo.common.records import reader
from ortoo.common.records.columns import DELIVER_AT, MESSAGE_COLUMNS, NUMBERS, Layout, MessageColumn, Presence
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.common.records.wire import Field, nested, read_fields
from ortoo.common.records.writer import batch_bytes, int32_buffer

FEW_ROWS_MAX = 48
"""Above this number of rows, numpy is faster."""
_PATH = "batch.records"


def gather_few(fields: dict[int, Field], rows: Sequence[int], columns: frozenset[int] = frozenset()) -> SealedBatch:
    """Copy some rows of an uncompressed batch, given as its fields, into a new batch without producer id and sequence.

    `columns` are the numbers of the columns to copy besides the body; an empty set means all columns.
    Errors: Invalid when the columns do not fit together.
    """
    sizes, body = _ranges(_buffer(fields, "body_offsets"), _buffer(fields, "body"), rows)
    written = [
        (column, write(data, rows))
        for column, write in _WRITERS
        if (not columns or column.number in columns) and (data := _buffer(fields, column.name))
    ]
    records = batch_bytes(len(rows), sizes, (body,), len(body), written)
    delayed = bool(_buffer(fields, DELIVER_AT.name))
    return SealedBatch(records, crc32c(records), len(rows), len(body), delayed=delayed)


def _buffer(fields: dict[int, Field], name: str) -> memoryview:
    return reader.buffer(fields, NUMBERS[name], f"{_PATH}.{name}")


def _numbers(width: int, *, if_used: bool = False) -> Callable[[memoryview, Sequence[int]], bytes]:
    """Return a function that copies rows of `width` bytes from a column.

    With `if_used`, the function returns no bytes if all copied rows are zero.
    """

    def take(column: memoryview, rows: Sequence[int]) -> bytes:
        taken = b"".join([column[width * row : width * (row + 1)] for row in rows])
        if len(taken) != width * len(rows):
            raise Invalid("a column of numbers ends early", field=_PATH)
        return b"" if if_used and not any(taken) else taken

    return take


def _text(column: memoryview, rows: Sequence[int]) -> bytes:
    fields = read_fields(column, _PATH)
    valid = _valid(fields, rows)
    if valid is not None and not any(valid):
        return b""
    offsets, data = _ranges(reader.buffer(fields, 2, _PATH), reader.buffer(fields, 3, _PATH), rows)
    return nested(_bitmap(valid), offsets, data)


def _dictionary(column: memoryview, rows: Sequence[int]) -> bytes:
    """A dictionary column of these rows; its dictionary has the texts that they use, in order of first use."""
    fields = read_fields(column, _PATH)
    valid = _valid(fields, rows)
    if valid is not None and not any(valid):
        return b""
    codes = reader.buffer(fields, 2, _PATH).cast("i")
    places: dict[int, int] = {}
    taken = [
        places.setdefault(codes[row], len(places)) if valid is None or valid[number] else 0
        for number, row in enumerate(rows)
    ]
    if min(places, default=0) < 0:
        raise Invalid("a code of a dictionary column is below 0", field=_PATH)
    return nested(_bitmap(valid), int32_buffer(taken), _text(reader.buffer(fields, 3, _PATH), list(places)))


def _list(column: memoryview, rows: Sequence[int]) -> bytes:
    fields = read_fields(column, _PATH)
    offsets, entries = _entries(reader.buffer(fields, 1, _PATH), rows, len(column))
    if not entries:
        return b""
    return nested(offsets, _text(reader.buffer(fields, 2, _PATH), entries))


def _map(column: memoryview, rows: Sequence[int]) -> bytes:
    fields = read_fields(column, _PATH)
    offsets, entries = _entries(reader.buffer(fields, 1, _PATH), rows, len(column))
    if not entries:
        return b""
    names, values = reader.buffer(fields, 2, _PATH), reader.buffer(fields, 3, _PATH)
    return nested(offsets, _dictionary(names, entries), _text(values, entries))


def _writer(column: MessageColumn[Any]) -> Callable[[memoryview, Sequence[int]], bytes]:
    if width := _WIDTHS.get(column.layout):
        return _numbers(width, if_used=column.presence in (Presence.IF_USED, Presence.IF_NOT_ZERO))
    return _TEXTS[column.layout]


_WIDTHS: Final = {Layout.INT8: 1, Layout.INT32: 4, Layout.TIMES: 8}
_TEXTS: Final[dict[Layout, Callable[[memoryview, Sequence[int]], bytes]]] = {
    Layout.TEXTS: _text,
    Layout.DICTIONARY: _dictionary,
    Layout.LISTS: _list,
    Layout.MAPS: _map,
}
_WRITERS: Final = [(column, _writer(column)) for column in MESSAGE_COLUMNS]


def _ranges(offsets: memoryview, data: memoryview, rows: Sequence[int]) -> tuple[bytes, bytes]:
    """The offsets and the bytes of some rows in a new column."""
    places, end = offsets.cast("i"), len(data)
    total, sums, parts = 0, [0], []
    for row in rows:
        start, stop = places[row], places[row + 1]
        if not 0 <= start <= stop <= end:
            raise Invalid("offsets decrease, or lie beyond the data", field=_PATH)
        parts.append(data[start:stop])
        total += stop - start
        sums.append(total)
    return int32_buffer(sums), b"".join(parts)


def _entries(offsets: memoryview, rows: Sequence[int], size_bytes: int) -> tuple[bytes, list[int]]:
    """The offsets of some lists in a new column, and the indexes of their entries in the old column.

    Each entry takes at least four of the column's `size_bytes`.
    """
    places, end = offsets.cast("i"), size_bytes // 4
    sums, entries = [0], list[int]()
    for row in rows:
        start, stop = places[row], places[row + 1]
        if not 0 <= start <= stop <= end:
            raise Invalid("offsets of lists decrease, or lie beyond the entries", field=_PATH)
        entries += range(start, stop)
        sums.append(len(entries))
    return int32_buffer(sums), entries


def _valid(fields: dict[int, Field], rows: Sequence[int]) -> list[int] | None:
    """For each row 1 if it has a value, otherwise 0; None if all rows have a value."""
    bits = reader.buffer(fields, 1, _PATH)
    if not bits:
        return None
    valid = [bits[row >> 3] >> (row & 7) & 1 for row in rows]
    return None if all(valid) else valid


def _bitmap(valid: Sequence[int] | None) -> bytes:
    if valid is None:
        return b""
    number = sum(bit << place for place, bit in enumerate(valid))
    return number.to_bytes((len(valid) + 7) // 8, "little")

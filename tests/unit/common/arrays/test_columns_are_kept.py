"""Every column of a batch survives each operation that reads, selects, joins or writes rows.

Each operation has its own table of columns, and drops unknown columns silently. The cases are made from `COLUMNS`, so
that a new column there fails for each operation that does not know it yet.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ortoo.common.arrays.few_rows import FEW_ROWS_MAX, gather_few
from ortoo.common.arrays.gather import gather, write_table
from ortoo.common.arrays.message_table import concat_tables, take_rows
from ortoo.common.arrays.opened_batch import DictionaryArrays, ListArrays, MapArrays, OpenedBatch, TextArrays
from ortoo.common.records.batch import Codec, Message, encode, open_batch
from ortoo.common.records.columns import COLUMNS, FORMAT, NUMBERS, Column, MessageColumn
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.common.records.wire import bytes_field
from ortoo.v1 import record_pb2

COUNT = 2 * FEW_ROWS_MAX + 24
EVERY = list(range(COUNT))
FEW, MANY = [3, 4, 60, COUNT - 1], EVERY[::2]
"""FEW rows are written without arrays, MANY with them. Where some rows have a value, some of these do."""
NOW_MS = 7
CHOSEN = tuple(column for column in COLUMNS if isinstance(column, MessageColumn))
"""The columns that an operation could drop; those before are the head, without which there is no batch."""
NOT_FOR_SOME = ("always", "all rows or none")
NUMBER_CODES = {"int8": "b", "int32": "i", "int64": "q"}

Values = list[Any]
"""One value per row, None where the row has none."""


# a batch as protobuf's own runtime writes it, column by column


def sealed(rows: Sequence[int], **columns: Values) -> SealedBatch:
    """A batch with these bodies and columns; one without any value is absent."""
    bodies = [body(row) for row in rows]
    head = record_pb2.RecordBatch(
        format=FORMAT,
        count=len(rows),
        codec=record_pb2.CODEC_NONE,
        body_inflated_bytes=sum(map(len, bodies)),
        body_offsets=offsets(bodies),
        body=b"".join(bodies),
    )
    there = {
        NUMBERS[name]: column(name, values)
        for name, values in columns.items()
        if any(one is not None for one in values)
    }
    records = head.SerializeToString() + b"".join(bytes_field(number, there[number]) for number in sorted(there))
    return SealedBatch(records, crc32c(records), len(rows), sum(map(len, bodies)))


def column(name: str, values: Values) -> bytes:
    """The bytes of a column."""
    layout = layout_of(name)
    if layout.endswith(" x count"):
        return struct.pack(f"<{len(values)}{NUMBER_CODES[layout.split()[0]]}", *[value or 0 for value in values])
    made: Any = {
        "utf8": texts,
        "dictionary<int32, utf8>": dictionary,
        "list<utf8>": lists,
        "map<dictionary<int32, utf8>, utf8>": maps,
    }[layout](values)
    return bytes(made.SerializeToString())


def texts(values: Values) -> Any:
    there = [(value or "").encode() for value in values]
    return record_pb2.TextColumn(validity=validity(values), offsets=offsets(there), data=b"".join(there))


def dictionary(values: Values) -> Any:
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    codes = struct.pack(f"<{len(values)}i", *[0 if value is None else distinct.index(value) for value in values])
    return record_pb2.DictionaryColumn(validity=validity(values), codes=codes, dictionary=texts(distinct))


def lists(values: Values) -> Any:
    entries = [value or () for value in values]
    return record_pb2.TextListColumn(offsets=offsets(entries), values=texts(list(chain(*entries))))


def maps(values: Values) -> Any:
    entries = [list((value or {}).items()) for value in values]
    names, held = zip(*chain(*entries), strict=True)
    return record_pb2.MapColumn(offsets=offsets(entries), names=dictionary(list(names)), values=texts(list(held)))


def offsets(parts: Sequence[Any]) -> bytes:
    return struct.pack(f"<{len(parts) + 1}i", *accumulate(map(len, parts), initial=0))


def validity(values: Values) -> bytes:
    if None not in values:
        return b""
    bits = sum((value is not None) << row for row, value in enumerate(values))
    return bits.to_bytes((len(values) + 7) // 8, "little")


# the values of the rows


def layout_of(name: str) -> str:
    return next(one.layout for one in COLUMNS if one.name == name)


def body(row: int) -> bytes:
    return b"body %d" % row


def value(name: str, row: int) -> Any:
    """The value of a row in a column; a new layout must be added here and to `column`."""
    layout = layout_of(name)
    if layout.endswith(" x count"):
        return 1 if layout.startswith("int8") else 1_000 + row
    return {
        "utf8": f"{name}-{row}",
        "dictionary<int32, utf8>": f"{name}-{row % 5}",
        "list<utf8>": (f"{name}-{row}", "of all"),
        "map<dictionary<int32, utf8>, utf8>": {"of all": f"{row}", f"{name}-{row % 5}": "é"},
    }[layout]


def values(name: str, rows: Sequence[int], filled: str) -> Values:
    return [value(name, row) if filled == "all rows" or row % 3 == 0 else None for row in rows]


def arrays(column: Any, rows: int) -> Values:
    """The values of rows in a column of arrays; an absent column has none."""
    if column is None:
        return [None] * rows
    if isinstance(column, TextArrays):
        said = [bytes(column.data[start:end]).decode() for start, end in pairwise(column.offsets.tolist())]
    elif isinstance(column, DictionaryArrays):
        distinct = arrays(column.texts, 0)
        said = [distinct[code] for code in column.codes]
    elif isinstance(column, ListArrays):
        entries = arrays(column.texts, 0)
        return [tuple(entries[start:end]) or None for start, end in pairwise(column.offsets.tolist())]
    elif isinstance(column, MapArrays):
        entries = list(zip(arrays(column.names, 0), arrays(column.values, 0), strict=True))
        return [dict(entries[start:end]) or None for start, end in pairwise(column.offsets.tolist())]
    else:
        return [number or None for number in column.tolist()]
    return [one if column.valid is None or column.valid[row] else None for row, one in enumerate(said)]


# the operations, each with the file of its table


def opened(name: str, filled: str) -> tuple[object, object]:
    """The result of an operation and the expected one, as for each of these functions."""
    batch = OpenedBatch(sealed(EVERY, **{name: values(name, EVERY, filled)}))
    return arrays(getattr(batch, name), COUNT), values(name, EVERY, filled)


def some_taken(name: str, filled: str) -> tuple[object, object]:
    batch = OpenedBatch(sealed(EVERY, **{name: values(name, EVERY, filled)}))
    tables = [take_rows(batch, np.array(MANY, "<i4"), numbers) for numbers in (frozenset[int](), only(name))]
    return [arrays(getattr(it, name), len(MANY)) for it in tables], [values(name, MANY, filled)] * 2


def some_joined(name: str, filled: str) -> tuple[object, object]:
    """There are rows without values between, unless such rows are never in one batch."""
    without: Values = values(name, FEW, filled) if filled == "all rows" else [None] * len(FEW)
    parts = [values(name, MANY, filled), without, values(name, EVERY, filled)]
    rows = [MANY, FEW, EVERY]
    batches = [OpenedBatch(sealed(some, **{name: part})) for some, part in zip(rows, parts, strict=True)]
    table = concat_tables([take_rows(batch, np.arange(batch.count, dtype="<i4")) for batch in batches])
    return arrays(getattr(table, name), table.count), list(chain(*parts))


def all_written(name: str, filled: str) -> tuple[object, object]:
    whole = sealed(EVERY, **{name: values(name, EVERY, filled)})
    batch = OpenedBatch(whole)
    behind = dict.fromkeys((one.name for one in CHOSEN), None) | {name: getattr(batch, name)}
    table: Any = SimpleNamespace(count=COUNT, body=batch.body, body_offsets=batch.body_offsets, **behind)
    return write_table(table).records, whole.records


def few_written(name: str, filled: str) -> tuple[object, object]:
    fields = OpenedBatch(sealed(EVERY, **{name: values(name, EVERY, filled)})).fields
    made = [gather_few(fields, FEW, numbers).records for numbers in (frozenset[int](), only(name))]
    return made, [sealed(FEW, **{name: values(name, FEW, filled)}).records] * 2


def some_gathered(name: str, filled: str) -> tuple[object, object]:
    batch = OpenedBatch(sealed(EVERY, **{name: values(name, EVERY, filled)}))
    made = [gather(batch, np.array(rows, "<i4"), only(name)).records for rows in (FEW, MANY)]
    return made, [sealed(rows, **{name: values(name, rows, filled)}).records for rows in (FEW, MANY)]


def viewed(name: str, filled: str) -> tuple[object, object]:
    whole, plain = sealed(EVERY, **{name: values(name, EVERY, filled)}), getattr(Message(b"x"), name)
    said = [plain if one is None else one for one in values(name, EVERY, filled)]
    in_bulk, by_row = open_batch(whole).messages(), open_batch(whole).messages(EVERY)
    return [[getattr(one, name) for one in messages] for messages in (in_bulk, by_row)], [said, said]


def encoded(name: str, filled: str) -> tuple[object, object]:
    """A message is stamped with its birth when it has none."""
    given = values(name, EVERY, filled)
    fields: list[dict[str, Any]] = [{} if one is None else {name: one} for one in given]
    made = encode([Message(body(row), **of) for row, of in zip(EVERY, fields, strict=True)], now_ms=NOW_MS)
    return made.records, sealed(EVERY, **{"born_at_ms": [NOW_MS] * COUNT, name: given}).records


def only(name: str) -> frozenset[int]:
    return frozenset({NUMBERS[name]})


PLACES: dict[str, Callable[[str, str], tuple[object, object]]] = {
    "arrays/opened_batch.py, OpenedBatch": opened,
    "arrays/message_table.py, taken": some_taken,
    "arrays/message_table.py, joined": some_joined,
    "arrays/gather.py, written": all_written,
    "arrays/gather.py, gathered": some_gathered,
    "arrays/few_rows.py, few_gathered": few_written,
    "records/view.py, RecordBatchView": viewed,
    "records/batch.py, encode": encoded,
}
CASES = [
    pytest.param(one, filled, id=f"{one.name} in {filled}")
    for one in CHOSEN
    for filled in ("all rows", "some rows")
    if filled == "all rows" or one.presence not in NOT_FOR_SOME
]


@pytest.mark.parametrize(("which", "filled"), CASES)
@pytest.mark.parametrize("place", PLACES)
def test_a_column_is_kept(place: str, which: Column, filled: str) -> None:
    """All values are read, each in its row, as protobuf's own runtime wrote them."""
    try:
        kept, given = PLACES[place](which.name, filled)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        pytest.fail(f"{place}, or code below it, does not know the column {which.name!r}: {error!r}")
    assert kept == given, f"{place} loses values of the column {which.name!r}"


@pytest.mark.parametrize("codec", Codec)
def test_bodies_are_kept_whatever_the_codec(codec: Codec) -> None:
    """A batch of selected rows has uncompressed bodies."""
    batch = OpenedBatch(encode([Message(body(row) * 20) for row in EVERY], now_ms=NOW_MS, codec=codec))
    assert batch.is_compressed == (codec is not Codec.NONE)
    for rows in (FEW, MANY):
        made = gather(batch, np.array(rows, "<i4"))
        assert open_batch(made, verify_crc=True).bodies() == [body(row) * 20 for row in rows]

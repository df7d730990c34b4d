"""The buffers of a record batch as Arrow arrays, without copies, validated by Arrow before use.

Functions take the bytes of a column, the expected number of rows, and the path of the column for errors. They return
an array of plain Arrow types, because Spark does not accept dictionaries. Invalid bytes raise Invalid.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ortoo.common.errors import Invalid
from ortoo.common.records.reader import buffer, check_size
from ortoo.common.records.sealed_batch import MESSAGES_MAX
from ortoo.common.records.wire import read_fields
from ortoo.spark.arrow.schema import MAP, MAP_FIELDS

UTC_TIME = pa.timestamp("us", tz="UTC")
Array = Any
"""A pyarrow.Array."""


def checked_array(kind: Any, rows: int, buffers: Sequence[Any], path: str, children: Sequence[Array] = ()) -> Array:
    """Make an array from Arrow `buffers`; Arrow validates the array completely. Errors: Invalid."""
    try:
        array = pa.Array.from_buffers(kind, rows, list(buffers), children=list(children) or None)
        array.validate(full=True)
    except (pa.ArrowInvalid, ValueError) as error:
        raise Invalid(f"invalid column: {error}", field=path) from None
    return array


def numbers(data: memoryview, rows: int, kind: Any, path: str) -> Array:
    """A column of fixed-width numbers of the pyarrow type `kind`."""
    check_size(data, rows, kind.bit_width // 8, path)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def times(data: memoryview, rows: int, path: str) -> Array:
    """A column of milliseconds since 1970 as UTC timestamps in microseconds; times after the year 294,246 are null."""
    check_size(data, rows, 8, path)
    ms = np.frombuffer(data, "<i8")
    possible = (ms >= 0) & (ms <= _LAST_MS)
    validity = None if possible.all() else pa.py_buffer(np.packbits(possible, bitorder="little"))
    return pa.Array.from_buffers(UTC_TIME, rows, [validity, pa.py_buffer(ms * 1000)])


def binary(offsets: memoryview, data: memoryview, rows: int, path: str) -> Array:
    """A column of bodies: `offsets` are int32 positions in the bytes `data`."""
    check_size(offsets, rows + 1, 4, path)
    return checked_array(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)], path)


def texts(column: memoryview, rows: int | None, path: str) -> Array:
    """Decode a text column; if `rows` is None, the number of rows follows from the column's offsets."""
    fields = read_fields(column, path)
    offsets = buffer(fields, 2, f"{path}.offsets")
    count = max(len(offsets) // 4 - 1, 0) if rows is None else rows
    if not count and not len(offsets):
        return pa.nulls(0, pa.string())
    check_size(offsets, count + 1, 4, f"{path}.offsets")
    validity = buffer(fields, 1, f"{path}.validity")
    buffers = [_bitmap(validity, count, path), pa.py_buffer(offsets), pa.py_buffer(buffer(fields, 3, f"{path}.data"))]
    return checked_array(pa.string(), count, buffers, path)


def dictionary(column: memoryview, rows: int, path: str) -> Array:
    """Decode a dictionary column to a column of texts."""
    fields = read_fields(column, path)
    codes_data = buffer(fields, 2, f"{path}.codes")
    check_size(codes_data, rows, 4, f"{path}.codes")
    distinct = texts(buffer(fields, 3, f"{path}.dictionary"), None, f"{path}.dictionary")
    validity = _bitmap(buffer(fields, 1, f"{path}.validity"), rows, path)
    codes = pa.Array.from_buffers(pa.int32(), rows, [validity, pa.py_buffer(codes_data)])
    try:
        return distinct.take(codes)
    except (pa.ArrowIndexError, pa.ArrowInvalid) as error:
        raise Invalid(f"a code has no entry in the dictionary: {error}", field=f"{path}.codes") from None


def lists(column: memoryview, rows: int, path: str) -> Array:
    """Decode a column of lists of texts."""
    fields = read_fields(column, path)
    values = texts(buffer(fields, 2, f"{path}.values"), None, f"{path}.values")
    offsets = buffer(fields, 1, f"{path}.offsets")
    check_size(offsets, rows + 1, 4, f"{path}.offsets")
    kind = pa.list_(pa.field("element", pa.string()))
    return checked_array(kind, rows, [None, pa.py_buffer(offsets)], path, [values])


def maps(column: memoryview, rows: int, path: str) -> Array:
    """Decode a column of maps from text to text."""
    fields = read_fields(column, path)
    values = texts(buffer(fields, 3, f"{path}.values"), None, f"{path}.values")
    names = dictionary(buffer(fields, 2, f"{path}.names"), len(values), f"{path}.names")
    if names.null_count:
        raise Invalid("a property has no name", field=f"{path}.names")
    offsets = buffer(fields, 1, f"{path}.offsets")
    check_size(offsets, rows + 1, 4, f"{path}.offsets")
    entries = pa.StructArray.from_arrays([names, values], fields=MAP_FIELDS)
    return checked_array(MAP, rows, [None, pa.py_buffer(offsets)], path, [entries])


def of_numpy(values: Any, kind: Any = None) -> Array:
    """A column without nulls from a numpy array, of the fixed-width pyarrow type `kind`, or of the array's own type."""
    kind = pa.from_numpy_dtype(values.dtype) if kind is None else kind
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def repeated(value: str | int, rows: int, kind: Any) -> Array:
    """A column with `value` in each of its `rows` rows; columns of recent values are cached."""
    cached = _repeated(value, kind)
    return cached.slice(0, rows) if rows <= len(cached) else _made(value, rows, kind)


@lru_cache(maxsize=64)
def _repeated(value: str | int, kind: Any) -> Array:
    return _made(value, MESSAGES_MAX, kind)


def _made(value: str | int, rows: int, kind: Any) -> Array:
    if not isinstance(value, str):
        return of_numpy(np.full(rows, value, f"<i{kind.bit_width // 8}"), kind)
    text = value.encode()
    places = np.arange(rows + 1, dtype="<i4") * len(text)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(places), pa.py_buffer(text * rows)]).cast(kind)


def empty_column(rows: int, kind: Any, default: int | None = None) -> Array:
    """A column that the batch does not have: empty lists, empty maps, the number `default`, or nulls if it is None."""
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        children = [kind.value_type] if pa.types.is_list(kind) else [pa.struct(MAP_FIELDS)]
        offsets = pa.py_buffer(bytes(4 * (rows + 1)))
        return pa.Array.from_buffers(kind, rows, [None, offsets], children=[pa.nulls(0, child) for child in children])
    return pa.nulls(rows, kind) if default is None else repeated(default, rows, kind)


def joined(prefix: str, suffixes: Array) -> Array:
    """The texts of `suffixes`, each with `prefix` before it."""
    rows, kind = len(suffixes), pa.string()
    return pc.binary_join_element_wise(repeated(prefix, rows, kind), suffixes, repeated("", rows, kind))


def numbered(prefix: str, first: int, rows: int) -> Array:
    """The texts of consecutive whole numbers from `first` on, each with `prefix` before it."""
    head, tail = divmod(first, len(_LAST_DIGITS))
    fitting = len(_LAST_DIGITS) - tail
    if rows > fitting:
        return pa.concat_arrays([numbered(prefix, first, fitting), numbered(prefix, first + fitting, rows - fitting)])
    if not head:
        return joined(prefix, pa.arange(first, first + rows).cast(pa.string()))
    start = np.frombuffer(f"{prefix}{head}".encode(), np.uint8)
    table = np.empty((rows, len(start) + _LAST_DIGITS.shape[1]), np.uint8)
    table[:, : len(start)], table[:, len(start) :] = start, _LAST_DIGITS[tail : tail + rows]
    places = np.arange(rows + 1, dtype="<i4") * table.shape[1]
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(places), pa.py_buffer(table)])


def _bitmap(validity: memoryview, rows: int, path: str) -> Any:
    if not len(validity):
        return None
    check_size(validity, (rows + 7) // 8, 1, f"{path}.validity")
    return pa.py_buffer(validity)


_LAST_MS = (1 << 63) // 1000 - 1
_LAST_DIGITS = np.array([b"%04d" % number for number in range(10_000)]).view(np.uint8).reshape(-1, 4)
"""The last four digits of a number, as characters."""

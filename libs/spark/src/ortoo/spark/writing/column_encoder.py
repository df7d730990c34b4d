"""Arrow columns as the columns of a record batch: buffers are copied, without loops over rows.

Functions return the bytes of the nested protobuf message; b"" if no row has a value. docs/formats/record-batch.md has
the format. Arrays may be slices of other arrays.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import Layout
from ortoo.common.records.wire import nested

Int32s = Any
"""A numpy array of int32."""


def block(array: Any) -> tuple[Any, bytes]:
    """The offsets and the bytes of a text or binary array; nulls are empty.

    The offsets are int32 of shape (rows + 1,) and begin with 0.
    """
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], "<i4", len(array) + 1, 4 * array.offset)
    data = memoryview(buffers[2] or b"")[int(offsets[0]) : int(offsets[-1])]
    return offsets - offsets[0], bytes(data)


def texts(array: Any) -> bytes:
    """The wire bytes of a text column."""
    if array.null_count == len(array):
        return b""
    dense = array.fill_null("") if array.null_count else array
    offsets, data = block(dense)
    return nested(_validity(array), offsets.tobytes(), data)


def dictionary(array: Any) -> bytes:
    """The wire bytes of a text array as a dictionary column."""
    if array.null_count == len(array):
        return b""
    encoded = array.dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype("<i4")
    return nested(_validity(array), codes.tobytes(), texts(encoded.dictionary))


def lists(array: Any) -> bytes:
    """The wire bytes of a list column. In a text array, each text counts as a list of one text.

    Errors: Invalid for a null inside a list.
    """
    if pa.types.is_string(array.type):
        has_value = array.is_valid().to_numpy(zero_copy_only=False)
        places, values = np.concatenate(([0], np.cumsum(has_value))).astype("<i4"), array.drop_null()
    else:
        places, values = _places(array), array.flatten()
        if values.null_count:
            raise Invalid("a list of keys holds a null; remove it with filter(keys, k -> k is not null)", field="keys")
    if not len(values):
        return b""
    return nested(places.tobytes(), texts(values))


def maps(array: Any) -> bytes:
    """The wire bytes of a map column. Errors: Invalid for a property without a value."""
    places = _places(array)
    if not places[-1]:
        return b""
    filled = array.drop_null() if array.null_count else array
    entries = filled.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))).flatten()
    names, values = entries.field(0), entries.field(1)
    if values.null_count:
        raise Invalid(
            "a property has no value; remove it by map_filter(properties, (k, v) -> v is not null)", field="properties"
        )
    return nested(places.tobytes(), dictionary(names), texts(values))


def numbers(array: Any, layout: Layout) -> Any:
    """Whole numbers as a pyarrow.Array of the layout's width; timestamps as milliseconds, rounded down."""
    if layout is not Layout.TIMES:
        return array.cast(_WIDTHS[layout])
    whole = array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64())
    floored = np.floor_divide(whole.fill_null(0).to_numpy(zero_copy_only=False), 1000)
    return pa.array(floored, pa.int64(), mask=whole.is_null().to_numpy(zero_copy_only=False))


def number_bytes(array: Any, layout: Layout) -> bytes:
    """The wire bytes of a column of numbers without nulls."""
    return bytes(array.to_numpy(zero_copy_only=False).astype(_WIDTHS[layout].to_pandas_dtype()).tobytes())


def text_bytes(array: Any) -> Any:
    """The maximum size of each row's texts, and of their places in lists and maps, as int64 of shape (rows,)."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype("i8")
    if pa.types.is_map(kind):
        entries = array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))).flatten()
        return _per_row(array, text_bytes(entries.field(0)) + text_bytes(entries.field(1)) + 12)
    if pa.types.is_list(kind):
        return _per_row(array, text_bytes(array.flatten()) + 4)
    return np.full(len(array), 8, "i8")


def _per_row(array: Any, sizes: Any) -> Any:
    ends = np.concatenate(([0], np.cumsum(sizes)))
    places = _places(array)
    return ends[places[1:]] - ends[places[:-1]]


def _places(array: Any) -> Int32s:
    """The index of each row's first item in the flattened values, as int32 of shape (rows + 1,).

    Null rows have no items.
    """
    lengths = pc.list_value_length(_as_list(array)).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths))).astype("<i4")


def _as_list(array: Any) -> Any:
    if not pa.types.is_map(array.type):
        return array
    return array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))


def _validity(array: Any) -> bytes:
    if not array.null_count:
        return b""
    return np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes()


_WIDTHS: Final = {Layout.INT8: pa.int8(), Layout.INT32: pa.int32(), Layout.TIMES: pa.int64()}

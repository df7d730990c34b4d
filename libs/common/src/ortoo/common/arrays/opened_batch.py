"""A record batch as numpy arrays over its bytes, for checks, filters and gathering.

Opening reads the head. Each column is parsed at its first use, and its shape is checked then. Sizes must agree, offsets
must start at 0, never decrease and end at the buffer's end, and codes must lie inside the dictionary. `batch_check`
checks the texts themselves. Errors are Invalid or Unsupported and name the column by its path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ortoo.common.arrays.column_attributes import ColumnAttributes
from ortoo.common.errors import Invalid
from ortoo.common.records import reader
from ortoo.common.records.columns import MESSAGE_COLUMNS, NUMBERS, Layout, MessageColumn
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.view import body_block, check_envelope, read_head
from ortoo.common.records.wire import read_fields

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)

RECORDS_PATH = "batch.records"
_INT8, _INT32, _INT64 = np.dtype("i1"), np.dtype("<i4"), np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class TextArrays:
    """A utf8 column: `offsets` (rows + 1) into `data`, and the rows that have a value (None = all)."""

    offsets: Int32s
    data: memoryview
    valid: Mask | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class DictionaryArrays:
    """A dictionary column: `codes` (rows) into `texts`, and the rows that have a value (None = all)."""

    codes: Int32s
    texts: TextArrays
    valid: Mask | None


@dataclass(frozen=True, slots=True)
class ListArrays:
    """A list<utf8> column: `offsets` (rows + 1) into the rows of `texts`."""

    offsets: Int32s
    texts: TextArrays


@dataclass(frozen=True, slots=True)
class MapArrays:
    """A map column: `offsets` (rows + 1) into the entries, each with a name and a value."""

    offsets: Int32s
    names: DictionaryArrays
    values: TextArrays


def _numbers(data: memoryview, rows: int, path: str, kind: np.dtype[Number]) -> NDArray[Number]:
    reader.check_size(data, rows, kind.itemsize, path)
    return np.frombuffer(data, kind)


def _offsets(data: memoryview, rows: int, end: int, path: str) -> Int32s:
    """Read offsets, and check that they start at 0, never decrease, and finish at `end`."""
    offsets = _numbers(data, rows + 1, path, _INT32)
    if offsets[0] != 0 or offsets[-1] != end:
        raise Invalid(f"offsets go from {offsets[0]} to {offsets[-1]} instead of from 0 to {end}", field=path)
    if (offsets[1:] < offsets[:-1]).any():
        raise Invalid("offsets decrease; every row must start where the previous one ends", field=path)
    return offsets


def _valid(data: memoryview, rows: int, path: str) -> Mask | None:
    """Read a validity bitmap: for each row whether it has a value. None if all rows have a value."""
    if not data:
        return None
    reader.check_size(data, (rows + 7) // 8, 1, path)
    valid = np.unpackbits(np.frombuffer(data, np.uint8), count=rows, bitorder="little").view(np.bool_)
    return None if valid.all() else valid


def _texts(fields: reader.Fields, rows: int, path: str) -> TextArrays:
    data = reader.buffer(fields, 3, f"{path}.data")
    offsets = _offsets(reader.buffer(fields, 2, f"{path}.offsets"), rows, len(data), f"{path}.offsets")
    return TextArrays(offsets, data, _valid(reader.buffer(fields, 1, f"{path}.validity"), rows, f"{path}.validity"))


def _dense_texts(column: memoryview, path: str) -> TextArrays:
    """Read texts without nulls; the number of offsets gives the number of texts."""
    fields = read_fields(column, path)
    if reader.buffer(fields, 1, f"{path}.validity"):
        raise Invalid("this column has a validity bitmap, but its texts must not be null", field=f"{path}.validity")
    size = len(reader.buffer(fields, 2, f"{path}.offsets"))
    if not size and 3 not in fields:
        return _NO_TEXTS
    if size < 4 or size % 4:
        raise Invalid(f"{size} bytes; expected a multiple of 4, because offsets are int32", field=f"{path}.offsets")
    return _texts(fields, size // 4 - 1, path)


def _dictionary(column: memoryview, rows: int, path: str) -> DictionaryArrays:
    fields = read_fields(column, path)
    codes = _numbers(reader.buffer(fields, 2, f"{path}.codes"), rows, f"{path}.codes", _INT32)
    texts = _dense_texts(reader.buffer(fields, 3, f"{path}.dictionary"), f"{path}.dictionary")
    valid = _valid(reader.buffer(fields, 1, f"{path}.validity"), rows, f"{path}.validity")
    if texts.rows > rows:
        raise Invalid(
            f"{texts.rows} texts for {rows} rows; include only those that are used", field=f"{path}.dictionary"
        )
    if rows:
        if texts.rows == 0 and (valid is None or valid.any()):
            raise Invalid("the dictionary is empty but rows have a value", field=f"{path}.dictionary")
        if codes.view("<u4").max() >= max(texts.rows, 1):  # a negative code is a large one as u4
            reason = f"codes go from {codes.min()} to {codes.max()}; there are {texts.rows} texts"
            raise Invalid(reason, field=f"{path}.codes")
    return DictionaryArrays(codes, texts, valid)


def _text(column: memoryview, rows: int, path: str) -> TextArrays:
    return _texts(read_fields(column, path), rows, path)


def _list(column: memoryview, rows: int, path: str) -> ListArrays:
    fields = read_fields(column, path)
    texts = _dense_texts(reader.buffer(fields, 2, f"{path}.values"), f"{path}.values")
    offsets = reader.buffer(fields, 1, f"{path}.offsets")
    return ListArrays(_offsets(offsets, rows, texts.rows, f"{path}.offsets"), texts)


def _map(column: memoryview, rows: int, path: str) -> MapArrays:
    fields = read_fields(column, path)
    values = _dense_texts(reader.buffer(fields, 3, f"{path}.values"), f"{path}.values")
    names = _dictionary(reader.buffer(fields, 2, f"{path}.names"), values.rows, f"{path}.names")
    if names.valid is not None:
        raise Invalid("a property must have a name", field=f"{path}.names.validity")
    offsets = reader.buffer(fields, 1, f"{path}.offsets")
    return MapArrays(_offsets(offsets, rows, values.rows, f"{path}.offsets"), names, values)


_KNOWN = frozenset(NUMBERS.values())
_NO_TEXTS = TextArrays(np.zeros(1, "<i4"), memoryview(b""), None)


_READERS: Final[Mapping[Layout, Callable[[memoryview, int, str], Any]]] = {
    Layout.INT8: partial(_numbers, kind=_INT8),
    Layout.INT32: partial(_numbers, kind=_INT32),
    Layout.TIMES: partial(_numbers, kind=_INT64),
    Layout.TEXTS: _text,
    Layout.DICTIONARY: _dictionary,
    Layout.LISTS: _list,
    Layout.MAPS: _map,
}


class _LazyColumn:
    """A column of an opened batch: parsed at its first use, and None where the batch does not have it."""

    def __init__(self, column: MessageColumn[Any]) -> None:
        self._name, self._path = column.name, f"{RECORDS_PATH}.{column.name}"
        self._number, self._read = column.number, _READERS[column.layout]

    def __get__(self, batch: "OpenedBatch", owner: type) -> Any:
        data = reader.buffer(batch.fields, self._number, self._path)
        column = self._read(data, batch.count, self._path) if data else None
        batch.__dict__[self._name] = column  # from now on Python finds it here first
        return column


class OpenedBatch(ColumnAttributes):
    """One batch, its columns as arrays. Columns that the batch does not have are None."""

    def __init__(self, sealed: SealedBatch) -> None:
        """Read the head of `sealed` and compare it with the envelope; the CRC is not checked."""
        self.sealed = sealed
        self.fields = read_fields(memoryview(sealed.records), RECORDS_PATH)
        self.count, self.codec, self.body_inflated_bytes = read_head(self.fields)
        check_envelope(sealed, self.count, self.body_inflated_bytes)

    @property
    def is_compressed(self) -> bool:
        """Whether the bodies are compressed."""
        return self.codec is not Codec.NONE

    @property
    def has_unknown_columns(self) -> bool:
        """Whether the batch has columns of a newer version, which this process does not know."""
        return not _KNOWN.issuperset(self.fields)

    @cached_property
    def body(self) -> memoryview:
        """All bodies as one decompressed block."""
        return body_block(self.fields, self.codec, self.body_inflated_bytes)

    @cached_property
    def body_offsets(self) -> Int32s:
        """The start of each message's body in `body`, and the end of the last body."""
        path = f"{RECORDS_PATH}.body_offsets"
        return _offsets(
            reader.buffer(self.fields, NUMBERS["body_offsets"], path), self.count, self.body_inflated_bytes, path
        )


for _column in MESSAGE_COLUMNS:
    setattr(OpenedBatch, _column.name, _LazyColumn(_column))

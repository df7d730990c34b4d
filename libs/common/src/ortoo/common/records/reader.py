"""Reading the columns of a record batch into Python lists, without numpy.

Every reader takes the column's bytes, the expected number of rows, and the column's path for errors. It returns one
value per row, or raises Invalid. No input makes it fail with another error.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from ortoo.common.errors import Invalid
from ortoo.common.records.wire import Field, read_fields

Fields = dict[int, Field]
SMALL_BYTES = 256
SMALL_CACHED_MAX = 1_024


def number(fields: Fields, field: int, path: str) -> int:
    """Return a number field; 0 when it is absent."""
    value = fields.get(field, 0)
    if not isinstance(value, int) or value < 0:
        raise Invalid("expected a number, got a bytes field: the data are damaged", field=path)
    return value


def buffer(fields: Fields, field: int, path: str) -> memoryview:
    """Return a bytes field; an empty view when it is absent."""
    value = fields.get(field, _EMPTY)
    if isinstance(value, int):
        raise Invalid("expected a bytes field, got a number: the data are damaged", field=path)
    return value


def _numbers(code: Literal["b", "i", "q"], width: int) -> Callable[[memoryview, int, str], list[int]]:
    """A function that reads numbers of struct's format `code`."""

    def read(data: memoryview, rows: int, path: str) -> list[int]:
        check_size(data, rows, width, path)
        return data.cast(code).tolist()

    return read


int8s, int32s, int64s = _numbers("b", 1), _numbers("i", 4), _numbers("q", 8)
"""Read int8, int32 or int64 x rows."""


def offsets(data: memoryview, rows: int, end: int, path: str) -> list[int]:
    """Read `rows` + 1 int32 offsets, and check that they start at 0, never decrease, and finish at `end`."""
    places = int32s(data, rows + 1, path)
    if places[0] != 0 or places[-1] != end:
        raise Invalid(f"offsets go from {places[0]} to {places[-1]} instead of from 0 to {end}", field=path)
    if sorted(places) != places:
        raise Invalid("offsets decrease; every row must start where the previous one ends", field=path)
    return places


def texts(column: memoryview, rows: int, path: str) -> list[str | None]:
    """Read a column in Arrow's utf8 layout."""
    fields = read_fields(column, path)
    values = _valid_texts(fields, rows, path)
    validity = buffer(fields, 1, f"{path}.validity")
    return _masked(values, validity, path) if validity else list(values)


def dictionary(column: memoryview, rows: int, path: str) -> list[str | None]:
    """Read a column in Arrow's dictionary layout. The caller does not change the values, which may be shared.

    Small columns occur in many batches: most of a producer's batches of one message have equal columns.
    """
    if len(column) <= SMALL_BYTES:
        return _small_dictionary(bytes(column), rows, path)
    return _dictionary(column, rows, path)


def _dictionary(column: memoryview, rows: int, path: str) -> list[str | None]:
    fields = read_fields(column, path)
    codes = int32s(buffer(fields, 2, f"{path}.codes"), rows, f"{path}.codes")
    distinct = _distinct_texts(buffer(fields, 3, f"{path}.dictionary"), f"{path}.dictionary")
    validity = buffer(fields, 1, f"{path}.validity")
    if not rows:
        return []
    if not distinct:
        distinct = [""]
        if not validity or any(validity):
            raise Invalid("the dictionary is empty but rows have a value", field=f"{path}.dictionary")
    if min(codes) < 0 or max(codes) >= len(distinct):
        raise Invalid(
            f"codes go from {min(codes)} to {max(codes)}; the dictionary has {len(distinct)} texts",
            field=f"{path}.codes",
        )
    values = list(map(distinct.__getitem__, codes))
    return _masked(values, validity, path) if validity else list(values)


def lists(column: memoryview, rows: int, path: str) -> list[tuple[str, ...]]:
    """Read a column in Arrow's list<utf8> layout."""
    fields = read_fields(column, path)
    values = _dense_texts(buffer(fields, 2, f"{path}.values"), f"{path}.values")
    places = offsets(buffer(fields, 1, f"{path}.offsets"), rows, len(values), f"{path}.offsets")
    return [tuple(values[start:end]) for start, end in pairwise(places)]


def maps(column: memoryview, rows: int, path: str) -> list[dict[str, str]]:
    """Read a column in Arrow's map layout with dictionary-encoded names."""
    fields = read_fields(column, path)
    values = _dense_texts(buffer(fields, 3, f"{path}.values"), f"{path}.values")
    names = dictionary(buffer(fields, 2, f"{path}.names"), len(values), f"{path}.names")
    if None in names:
        raise Invalid("a property has no name", field=f"{path}.names")
    places = offsets(buffer(fields, 1, f"{path}.offsets"), rows, len(values), f"{path}.offsets")
    return [
        dict(zip(names[start:end], values[start:end], strict=True))  # type: ignore[arg-type]
        for start, end in pairwise(places)
    ]


def check_size(data: memoryview, rows: int, width: int, path: str) -> None:
    """Raise Invalid unless the buffer holds exactly `rows` numbers of `width` bytes."""
    if len(data) != rows * width:
        raise Invalid(f"{len(data)} bytes; {rows} values of {width} bytes need {rows * width}", field=path)


def _distinct_texts(column: memoryview, path: str) -> list[str]:
    """The texts of a dictionary. Small dictionaries occur in many batches, so that their texts are cached."""
    return _small_texts(bytes(column), path) if len(column) <= SMALL_BYTES else _dense_texts(column, path)


@lru_cache(maxsize=SMALL_CACHED_MAX)
def _small_dictionary(column: bytes, rows: int, path: str) -> list[str | None]:
    return _dictionary(memoryview(column), rows, path)


@lru_cache(maxsize=SMALL_CACHED_MAX)
def _small_texts(column: bytes, path: str) -> list[str]:
    return _dense_texts(memoryview(column), path)


def _dense_texts(column: memoryview, path: str) -> list[str]:
    """Read a text column without nulls; the number of offsets gives the number of rows."""
    fields = read_fields(column, path)
    if buffer(fields, 1, f"{path}.validity"):
        raise Invalid("this column has a validity bitmap, but its texts must not be null", field=f"{path}.validity")
    size = len(buffer(fields, 2, f"{path}.offsets"))
    return _valid_texts(fields, size // 4 - 1, path) if size else []


def _valid_texts(fields: Fields, rows: int, path: str) -> list[str]:
    data = buffer(fields, 3, f"{path}.data")
    places = offsets(buffer(fields, 2, f"{path}.offsets"), rows, len(data), f"{path}.offsets")
    try:
        joined = str(data, "utf-8")
        if joined.isascii():
            return [joined[start:end] for start, end in pairwise(places)]
        return [str(data[start:end], "utf-8") for start, end in pairwise(places)]
    except UnicodeDecodeError as error:
        raise Invalid(f"this is not UTF-8: {error.reason} at byte {error.start}", field=f"{path}.data") from None


def _masked(values: list[str], validity: memoryview, path: str) -> list[str | None]:
    """The values, with None for each row that has no value according to the validity bitmap."""
    rows = len(values)
    check_size(validity, (rows + 7) // 8, 1, f"{path}.validity")
    bits = f"{int.from_bytes(validity, 'little'):0{rows}b}"[::-1]
    return [value if bit == "1" else None for value, bit in zip(values, bits[:rows], strict=True)]


_EMPTY = memoryview(b"")

"""The values of one property, or of the tag, in all rows of a batch, as arrays over the batch's bytes."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ortoo.common.arrays.opened_batch import DictionaryArrays, Int32s, MapArrays, Mask, OpenedBatch, TextArrays

Float64s = NDArray[np.float64]
NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""The form of a text that counts as a number."""

_MATRIX_BYTES_MAX = 1 << 20
"""From this size on, texts are compared one by one rather than as a table of bytes."""
_DIGITS_MAX = 15
"""A float can represent every whole number with this number of digits."""
_NUMBER_BYTES = re.compile(NUMBER.pattern.encode())


class PropertyValues:
    """At most one text for each row; `present` is true for rows with a text. No text has control characters."""

    __slots__ = ("_data", "_ends", "_starts", "present")

    def __init__(self, starts: Int32s, ends: Int32s, data: memoryview, present: Mask) -> None:
        """Row i's text is data[starts[i]:ends[i]] where `present`."""
        self.present = present
        self._starts = starts
        self._ends = ends
        self._data = np.frombuffer(data, np.uint8) if len(data) else _NO_BYTES

    @classmethod
    def of_property(cls, opened: OpenedBatch, name: str) -> "PropertyValues":
        """The values of a property."""
        rows = opened.count
        starts, ends, present = np.zeros(rows, "<i4"), np.zeros(rows, "<i4"), np.zeros(rows, np.bool_)
        column = opened.properties
        entries = _entries(column, name.encode()) if column is not None else _NO_ENTRIES
        if column is None or not len(entries):
            return cls(starts, ends, memoryview(b""), present)
        at = np.searchsorted(column.offsets, entries, side="right") - 1
        starts[at] = column.values.offsets[entries]
        ends[at] = column.values.offsets[entries + 1]
        present[at] = True
        return cls(starts, ends, column.values.data, present)

    @classmethod
    def of_tag(cls, opened: OpenedBatch) -> "PropertyValues":
        """The tags of the messages."""
        column, rows = opened.tag, opened.count
        if column is None or not column.texts.rows:
            nothing = np.zeros(rows, "<i4")
            return cls(nothing, nothing, memoryview(b""), np.zeros(rows, np.bool_))
        present = np.ones(rows, np.bool_) if column.valid is None else column.valid
        offsets = column.texts.offsets
        return cls(offsets[column.codes], offsets[column.codes + 1], column.texts.data, present)

    def one_of(self, texts: tuple[str, ...]) -> Mask:
        """For each row whether its value is one of `texts`."""
        found = np.zeros(len(self.present), np.bool_)
        sizes = self._ends - self._starts
        wanted: dict[int, list[bytes]] = {}
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            wanted.setdefault(len(encoded), []).append(encoded)
        for size, several in wanted.items():
            rows = np.flatnonzero(self.present & (sizes == size))
            if size == 0:
                found[rows] = True
            elif size * len(rows) > _MATRIX_BYTES_MAX:
                same = frozenset(several)
                found[rows] = [text in same for text in self.texts(rows)]
            elif len(rows):
                table = self._data[self._starts[rows][:, None] + np.arange(size)].view(f"S{size}")[:, 0]
                found[rows] = np.isin(table, np.array(several, f"S{size}"))
        return found

    def has_edge(self, text: str, *, at_end: bool) -> Mask:
        """For each row whether its value begins with `text` or, with `at_end`, ends with it."""
        edge = text.encode("utf-8", "surrogatepass")
        found = np.zeros(len(self.present), np.bool_)
        size = len(edge)
        rows = np.flatnonzero(self.present & (self._ends - self._starts >= size))
        if not size or not len(rows):
            found[rows] = True
            return found
        if size * len(rows) > _MATRIX_BYTES_MAX:
            matches = bytes.endswith if at_end else bytes.startswith
            found[rows] = [matches(value, edge) for value in self.texts(rows)]
            return found
        starts = self._ends[rows] - size if at_end else self._starts[rows]
        found[rows] = (self._data[starts[:, None] + np.arange(size)] == np.frombuffer(edge, np.uint8)).all(axis=1)
        return found

    def texts(self, rows: NDArray[np.intp]) -> list[bytes]:
        """The values of `rows`, as UTF-8; each of these rows must have a value."""
        data = self._data.tobytes() if len(rows) else b""
        places = zip(self._starts[rows].tolist(), self._ends[rows].tolist(), strict=True)
        return [data[start:end] for start, end in places]

    def numbers(self) -> tuple[Float64s, Mask]:
        """The values as numbers, and for each row whether its value is a number."""
        count = len(self.present)
        numbers, known = np.zeros(count), np.zeros(count, np.bool_)
        sizes = self._ends - self._starts
        short = np.flatnonzero(self.present & (sizes > 0) & (sizes <= _DIGITS_MAX + 1))
        if len(short):
            numbers[short], known[short] = self._decimals(short, int(sizes[short].max()))
        rest = np.flatnonzero(self.present & ~known)
        for row, text in zip(rest.tolist(), self.texts(rest), strict=True):
            if _NUMBER_BYTES.fullmatch(text):
                number = float(text)
                if abs(number) < float("inf"):
                    numbers[row], known[row] = number, True
        return numbers, known

    def _decimals(self, rows: NDArray[np.intp], width: int) -> tuple[Float64s, Mask]:
        """Values such as -12 and 3.50 as numbers, all at once; values of another form are not parsed here.

        The digits make a whole number below 10**15, which is exact. Dividing it by a power of ten rounds once, so that
        the result is the float nearest to the text.
        """
        places = self._ends[rows][:, None] - width + np.arange(width)
        inside = places >= self._starts[rows][:, None]
        signs = np.where(inside, self._data[np.maximum(places, 0)], 0).astype(np.int64)
        first = places == self._starts[rows][:, None]
        digit = (signs >= _ZERO) & (signs <= _NINE)
        dot, sign = signs == _DOT, first & ((signs == _MINUS) | (signs == _PLUS))
        behind: NDArray[np.int64] = np.cumsum(digit[:, ::-1], axis=1)[:, ::-1] - digit
        total = digit.sum(axis=1)
        mantissa = np.where(digit, (signs - _ZERO) * _POWERS[np.minimum(behind, _DIGITS_MAX)], 0).sum(axis=1)
        fraction = np.where(dot, behind, 0).sum(axis=1)
        good = (~inside | digit | dot | sign).all(axis=1) & (dot.sum(axis=1) <= 1) & (total > 0)
        good &= total <= _DIGITS_MAX
        numbers = mantissa / _POWERS[np.minimum(fraction, _DIGITS_MAX)].astype(np.float64)
        negative = (first & (signs == _MINUS)).any(axis=1)
        return np.where(negative, -numbers, numbers), good


def _entries(column: MapArrays, name: bytes) -> NDArray[np.intp]:
    """The indexes of the entries with this name, in order."""
    code = _code(column.names, name)
    return np.flatnonzero(column.names.codes == code) if code >= 0 else _NO_ENTRIES


def _code(column: DictionaryArrays, text: bytes) -> int:
    """The first code of a text in a dictionary; -1 if the text is not there."""
    texts: TextArrays = column.texts
    data = texts.data
    sizes = texts.offsets[1:] - texts.offsets[:-1]
    for code in np.flatnonzero(sizes == len(text)).tolist():
        if data[texts.offsets[code] : texts.offsets[code + 1]] == text:
            return int(code)
    return -1


_NO_BYTES = np.zeros(1, np.uint8)
_NO_ENTRIES = np.zeros(0, np.intp)
_ZERO, _NINE, _DOT, _MINUS, _PLUS = b"09.-+"
_POWERS = 10 ** np.arange(_DIGITS_MAX + 1, dtype=np.int64)

"""The key index of a segment: which messages have which key or which id. docs/formats/log.md has the tables.

Keys are hashed, many at once; a hit is a place to look at, not an answer, so whoever searches reads the message.
"""

import struct
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.record_columns import NUMBERS
from ortoo.common.record_reader import buffer
from ortoo.common.record_wire import read_fields
from ortoo.common.sealed_batch import crc32c

MAGIC = b"ORTK"
VERSION = 1
BLOCK_ENTRIES = 256
BLOCK_BYTES = BLOCK_ENTRIES * 16 + 8
KIND_KEY = 1
KIND_MESSAGE_ID = 2
ROW_BITS = 12

_HEAD = struct.Struct("<4sHHQQQI")
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_TABLE_ENTRIES = 1 << 18
_U64 = np.dtype("<u8")

Numbers = NDArray[np.uint64]


def text_hash(text: bytes, topic_id: int, kind: int) -> int:
    """The hash of one key (`KIND_KEY`) or message id (`KIND_MESSAGE_ID`) in a topic."""
    value = 0
    for byte in text:
        value = (value * _FACTOR + byte + 1) & _MASK
    return int(_salted(np.array([value], _U64), topic_id, kind)[0])


class _Powers:
    """Powers of the factor and of its inverse, made when first needed."""

    tables: tuple[Numbers, Numbers] | None = None

    @classmethod
    def get(cls) -> tuple[Numbers, Numbers]:
        if cls.tables is None:
            made = []
            for base in (_FACTOR, _INVERSE):
                table = np.full(_TABLE_ENTRIES, base, _U64)
                table[0] = 1
                made.append(np.multiply.accumulate(table))
            cls.tables = made[0], made[1]
        return cls.tables


def text_hashes(data: memoryview, offsets: NDArray[np.int32]) -> Numbers:
    """The unsalted hashes of texts that lie one after another in `data`, all at once."""
    if len(data) >= _TABLE_ENTRIES:
        values = []
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            value = 0
            for byte in data[start:end]:
                value = (value * _FACTOR + byte + 1) & _MASK
            values.append(value)
        return np.array(values, _U64)
    powers, inverses = _Powers.get()
    weighted = (np.frombuffer(data, np.uint8).astype(_U64) + np.uint64(1)) * inverses[: len(data)]
    sums = np.zeros(len(data) + 1, _U64)
    np.cumsum(weighted, out=sums[1:])
    starts, ends = offsets[:-1], offsets[1:]
    return (sums[ends] - sums[starts]) * powers[np.maximum(ends - 1, 0)]


def _salted(values: Numbers, topic_id: int, kind: int) -> Numbers:
    """Mix topic and kind in, and spread the bits."""
    salt = (topic_id * 0xD6E8FEB86659FD93 + kind * 0xA0761D6478BD642F) & _MASK
    mixed = values ^ np.uint64(salt)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Numbers = mixed ^ (mixed >> np.uint64(31))
    return result


def batch_entries(records: bytes, topic_id: int) -> tuple[Numbers, Numbers]:
    """Hashes and rows of all keys and message ids of one RecordBatch; none when the bytes are no such batch."""
    hashes: list[Numbers] = []
    rows: list[Numbers] = []
    try:
        fields = read_fields(memoryview(records), "batch.records")
        keys = buffer(fields, NUMBERS["keys"], "keys")
        if keys:
            column = read_fields(keys, "keys")
            places = np.frombuffer(buffer(column, 1, "offsets"), "<i4")
            found = _column_hashes(buffer(column, 2, "values"))
            hashes.append(_salted(found, topic_id, KIND_KEY))
            rows.append(np.repeat(np.arange(len(places) - 1, dtype=_U64), np.diff(places)))
        ids = buffer(fields, NUMBERS["message_id"], "message_id")
        if ids:
            found = _column_hashes(ids)
            hashes.append(_salted(found, topic_id, KIND_MESSAGE_ID))
            rows.append(np.arange(len(found), dtype=_U64))
        if any(len(one) != len(other) for one, other in zip(hashes, rows, strict=True)):
            return _NONE, _NONE
    except (Invalid, ValueError, IndexError):
        return _NONE, _NONE
    if not hashes:
        return _NONE, _NONE
    return np.concatenate(hashes), np.concatenate(rows)


_NONE: Numbers = np.zeros(0, _U64)


def _column_hashes(column: memoryview) -> Numbers:
    fields = read_fields(column, "texts")
    offsets = np.frombuffer(buffer(fields, 2, "offsets"), "<i4")
    data = buffer(fields, 3, "data")
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(data) or np.any(np.diff(offsets) < 0):
        raise Invalid("the offsets of a text column are damaged")
    return text_hashes(data, offsets)


class Entries:
    """Hashes and places of a part of a segment, in memory."""

    def __init__(self, base: int) -> None:
        """Nothing yet; `base` is the segment's first position."""
        self._base = base
        self._hashes: list[Numbers] = []
        self._places: list[Numbers] = []
        self._is_sorted = True

    def add(self, position: int, records: bytes, topic_id: int) -> None:
        """Take in the batch whose frame lies at `position`."""
        hashes, rows = batch_entries(records, topic_id)
        if len(hashes):
            self._is_sorted = False
            self._hashes.append(hashes)
            self._places.append(rows | np.uint64((position - self._base) // 64 << ROW_BITS))

    def sorted(self) -> tuple[Numbers, Numbers]:
        """All hashes, ascending, and their places, ascending among equal hashes."""
        if not self._hashes:
            return _NONE, _NONE
        hashes, places = np.concatenate(self._hashes), np.concatenate(self._places)
        if len(self._hashes) > 1 or not self._is_sorted:
            order = np.argsort(hashes, kind="stable")
            hashes, places = hashes[order], places[order]
            self._is_sorted = True
        self._hashes, self._places = [hashes], [places]
        return hashes, places

    def find(self, wanted: int) -> list[tuple[int, int]]:
        """(frame position, row) of each entry with this hash, in order of position."""
        hashes, places = self.sorted()
        value = np.uint64(wanted)
        low, high = np.searchsorted(hashes, value, "left"), np.searchsorted(hashes, value, "right")
        return list(unpacked(self._base, places[low:high]))


def unpacked(base: int, places: Numbers) -> Iterator[tuple[int, int]]:
    """(frame position, row) of each place."""
    for place in places.tolist():
        yield base + (place >> ROW_BITS) * 64, place & (1 << ROW_BITS) - 1


def encode_keys(base: int, end: int, hashes: Numbers, places: Numbers) -> bytes:
    """The key index file: header, blocks of 256 entries each with its CRC, and the first hash of each block."""
    count = len(hashes)
    head = _HEAD.pack(MAGIC, VERSION, 0, base, end, count, 0)[:-4]
    parts = [head, crc32c(head).to_bytes(4, "little")]
    for start in range(0, count, BLOCK_ENTRIES):
        block = hashes[start : start + BLOCK_ENTRIES].tobytes() + places[start : start + BLOCK_ENTRIES].tobytes()
        parts.append(block.ljust(BLOCK_ENTRIES * 16, b"\0") + crc32c(block).to_bytes(4, "little") + bytes(4))
    fences = hashes[::BLOCK_ENTRIES].tobytes()
    return b"".join([*parts, fences, crc32c(fences).to_bytes(4, "little")])


class BadKeys(ValueError):
    """The bytes are not a whole key index."""


class Fences:
    """What is kept in memory of a key index file: enough to find an entry with one or two reads."""

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int, base: int) -> None:
        """Read header and fences with `read(position in the file, length)`. Errors: BadKeys, Unsupported."""
        self._read = read
        head = read(0, _HEAD.size)
        if len(head) < _HEAD.size or head[:4] != MAGIC or crc32c(head[:-4]) != int.from_bytes(head[-4:], "little"):
            raise BadKeys("its header is damaged")
        _, version, _, own_base, self.end, self.count, _ = _HEAD.unpack(head)
        if version != VERSION:
            raise Unsupported(f"key index of version {version}; this process knows {VERSION}")
        self._base = base
        self._blocks = (self.count + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES
        at = _HEAD.size + self._blocks * BLOCK_BYTES
        data = read(at, self._blocks * 8 + 4)
        if own_base != base or size_bytes != at + len(data) or len(data) != self._blocks * 8 + 4:
            raise BadKeys("it is cut, or of another segment")
        if crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise BadKeys("its fences are damaged")
        self._fences: Numbers = np.frombuffer(data[:-4], _U64)

    def find(self, wanted: int) -> list[tuple[int, int]]:
        """(frame position, row) of each entry with this hash, in order of position. Errors: BadKeys."""
        value = np.uint64(wanted)
        found: list[tuple[int, int]] = []
        block = max(int(np.searchsorted(self._fences, value, "left")) - 1, 0)
        while block < self._blocks and int(self._fences[block]) <= wanted:
            hashes, places = self._block(block)
            low, high = np.searchsorted(hashes, value, "left"), np.searchsorted(hashes, value, "right")
            found.extend(unpacked(self._base, places[low:high]))
            block += 1
        return found

    def _block(self, number: int) -> tuple[Numbers, Numbers]:
        data = self._read(_HEAD.size + number * BLOCK_BYTES, BLOCK_BYTES)
        entries = min(BLOCK_ENTRIES, self.count - number * BLOCK_ENTRIES)
        body = data[: entries * 16]
        if len(data) != BLOCK_BYTES or crc32c(body) != int.from_bytes(data[-8:-4], "little"):
            raise BadKeys(f"block {number} is damaged")
        return np.frombuffer(body[: entries * 8], _U64), np.frombuffer(body[entries * 8 :], _U64)

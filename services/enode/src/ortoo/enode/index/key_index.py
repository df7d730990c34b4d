"""The key index of a segment: the places of messages by key or id. docs/formats/log.md has the tables.

Keys are hashed in bulk. A hit is only a candidate, so the search reads the message and compares.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.reader import buffer
from ortoo.common.records.sealed_batch import MESSAGES_MAX, crc32c
from ortoo.common.records.wire import read_fields
from ortoo.enode.disk.atomic_files import CRC_BYTES, DamagedFile, FileHead, with_crc, without_crc

BLOCK_ENTRIES = 256
BLOCK_BYTES = BLOCK_ENTRIES * 16 + 8
KIND_KEY = 1
KIND_MESSAGE_ID = 2
ROW_BITS = 12
WAITING_BYTES_MAX = 128 << 10
"""Bytes of texts that are hashed at once."""

_HEAD = FileHead("key index", b"ORTK", 1, "QQQ")
_HEAD_BYTES = _HEAD.size + CRC_BYTES
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_U64 = np.dtype("<u8")
_INDEX_BITS, _INDEX_MASK = np.uint64(32), np.uint64((1 << 32) - 1)
"""The index of an entry in the lower half of a number."""

HashArray = NDArray[np.uint64]
IndexArray = NDArray[np.int64]


def text_hash(text: bytes, topic_id: int, kind: int) -> int:
    """The hash of one key (`KIND_KEY`) or message id (`KIND_MESSAGE_ID`) in a topic."""
    value = 0
    for byte in text:
        value = (value * _FACTOR + byte + 1) & _MASK
    return int(_mixed(np.array([value ^ _salt(topic_id, kind)], _U64))[0])


class _Powers:
    """The powers of the factor and of its inverse that were needed so far."""

    tables: tuple[HashArray, HashArray] = (np.ones(1, _U64), np.ones(1, _U64))

    @classmethod
    def get(cls, count: int) -> tuple[HashArray, HashArray]:
        if len(cls.tables[0]) < count:
            made = []
            for base in (_FACTOR, _INVERSE):
                table = np.full(1 << (count - 1).bit_length(), base, _U64)
                table[0] = 1
                made.append(np.multiply.accumulate(table))
            cls.tables = made[0], made[1]
        return cls.tables


def text_hashes(data: bytes, starts: IndexArray, ends: IndexArray, salts: HashArray) -> HashArray:
    """The hashes of many texts in `data`, each with the salt of its topic and kind, all at once."""
    powers, inverses = _Powers.get(len(data) + 1)
    weighted = (np.frombuffer(data, np.uint8).astype(_U64) + np.uint64(1)) * inverses[: len(data)]
    sums = np.zeros(len(data) + 1, _U64)
    np.cumsum(weighted, out=sums[1:])
    return _mixed((sums[ends] - sums[starts]) * powers[np.maximum(ends - 1, 0)] ^ salts)


def _salt(topic_id: int, kind: int) -> int:
    return (topic_id * 0xD6E8FEB86659FD93 + kind * 0xA0761D6478BD642F) & _MASK


def _mixed(values: HashArray) -> HashArray:
    """Spread the bits of each hash."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: HashArray = values ^ (values >> np.uint64(31))
    return result


class _TextColumn(NamedTuple):
    """The texts of one batch that are not hashed yet."""

    salt: int
    place: int
    data: memoryview
    offsets: memoryview
    """int32 x (texts + 1)."""
    lists: memoryview | None
    """int32 x (rows + 1): the texts of each row. None = one each."""


def _columns(records: bytes, topic_id: int, place: int) -> Iterator[_TextColumn]:
    """The columns of one RecordBatch that have keys or ids. Errors: Invalid when the bytes are not such a batch."""
    fields = read_fields(memoryview(records), "batch.records")
    keys = buffer(fields, NUMBERS["keys"], "keys")
    if keys:
        column = read_fields(keys, "keys")
        yield _column(buffer(column, 2, "values"), buffer(column, 1, "offsets"), _salt(topic_id, KIND_KEY), place)
    ids = buffer(fields, NUMBERS["message_id"], "message_id")
    if ids:
        yield _column(ids, None, _salt(topic_id, KIND_MESSAGE_ID), place)


def _column(texts: memoryview, lists: memoryview | None, salt: int, place: int) -> _TextColumn:
    fields = read_fields(texts, "texts")
    data, offsets = buffer(fields, 3, "data"), buffer(fields, 2, "offsets")
    if not _is_offsets(offsets, len(data)) or (lists is not None and not _is_offsets(lists, len(offsets) // 4 - 1)):
        raise Invalid("the offsets of a column are damaged")
    return _TextColumn(salt, place, data, offsets, lists)


def _is_offsets(offsets: memoryview, end: int) -> bool:
    """Whether int32 offsets begin at 0 and end at `end`. `_hashed` checks that they ascend."""
    return (
        len(offsets) >= 4
        and len(offsets) % 4 == 0
        and int.from_bytes(offsets[:4], "little") == 0
        and int.from_bytes(offsets[-4:], "little") == end
    )


def _hashed(columns: Sequence[_TextColumn]) -> tuple[HashArray, HashArray]:
    """Hashes and places of all texts of some columns; empty if the offsets of any column do not ascend."""
    offsets = np.frombuffer(b"".join([one.offsets for one in columns]), "<i4").astype(np.int64)
    sizes = np.array([len(one.offsets) // 4 for one in columns])
    bases = np.cumsum([0] + [len(one.data) for one in columns])
    offsets += np.repeat(bases[:-1], sizes)
    lasts = np.cumsum(sizes) - 1
    starts, ends = np.delete(offsets, lasts), np.delete(offsets, lasts - sizes + 1)
    lists = [_ROWS[: len(one.offsets)] if one.lists is None else one.lists for one in columns]
    list_offsets = np.frombuffer(b"".join(lists), "<i4")
    list_sizes = np.array([len(one) // 4 for one in lists])
    per_row = np.delete(np.diff(list_offsets), np.cumsum(list_sizes)[:-1] - 1)
    if np.any(ends < starts) or np.any(per_row < 0):
        return _NONE, _NONE
    row_counts = list_sizes - 1
    firsts = np.repeat(np.cumsum(row_counts) - row_counts, row_counts)
    rows = (np.arange(len(firsts)) - firsts).astype(_U64)
    places = rows | np.repeat(np.array([one.place for one in columns], _U64), row_counts)
    salts = np.repeat(np.array([one.salt for one in columns], _U64), sizes - 1)
    data = b"".join([one.data for one in columns])
    return text_hashes(data, starts, ends, salts), np.repeat(places, per_row)


_NONE: HashArray = np.zeros(0, _U64)
_ROWS = memoryview(np.arange(MESSAGES_MAX + 1, dtype="<i4").tobytes())


class KeyEntries:
    """The keys and message ids in a part of a segment, as hashes with the places of the messages, in memory."""

    def __init__(self, base: int) -> None:
        """Start empty; `base` is the segment's first position."""
        self._base = base
        self._hashes: list[HashArray] = []
        self._places: list[HashArray] = []
        self._waiting: list[_TextColumn] = []
        self._waiting_bytes = 0

    def add(self, position: int, records: bytes, topic_id: int) -> None:
        """Add the batch whose frame lies at `position`; bytes that are not a batch have no keys."""
        place = (position - self._base) // 64 << ROW_BITS
        try:
            for column in _columns(records, topic_id, place):
                self._waiting.append(column)
                self._waiting_bytes += len(column.data) + len(column.offsets)
        except Invalid:
            return
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._settle()

    def sorted(self) -> tuple[HashArray, HashArray]:
        """All hashes, ascending, and their places. Equal hashes keep the order of `add`."""
        self._settle()
        if not self._hashes:
            return _NONE, _NONE
        hashes, places = np.concatenate(self._hashes), np.concatenate(self._places)
        order = np.argsort(hashes).astype(_U64)  # not stable, but several times as fast as a stable sort
        hashes = hashes[order]
        is_new = hashes[1:] != hashes[:-1]
        if not is_new.all():
            groups = np.cumsum(np.concatenate(([0], is_new)), dtype=_U64)
            order = np.sort(groups << _INDEX_BITS | order) & _INDEX_MASK
        return hashes, places[order]

    def find(self, wanted: int) -> list[tuple[int, int]]:
        """(frame position, row) of each entry with this hash, in order of position."""
        self._settle()
        value = np.uint64(wanted)
        found: list[tuple[int, int]] = []
        for hashes, places in zip(self._hashes, self._places, strict=True):
            found.extend(unpacked(self._base, places[hashes == value]))
        return found

    def _settle(self) -> None:
        """Hash all waiting texts at once. A batch with damaged offsets has no keys; the others keep theirs."""
        if not self._waiting:
            return
        parts = [_hashed(self._waiting)]
        if not len(parts[0][0]):
            parts = [_hashed([one]) for one in self._waiting]
        for hashes, places in parts:
            self._hashes.append(hashes)
            self._places.append(places)
        self._waiting, self._waiting_bytes = [], 0


def unpacked(base: int, places: HashArray) -> Iterator[tuple[int, int]]:
    """Yield (frame position, row) of each place."""
    for place in places.tolist():
        yield base + (place >> ROW_BITS) * 64, place & (1 << ROW_BITS) - 1


def _found(base: int, hashes: HashArray, places: HashArray, wanted: int) -> Iterator[tuple[int, int]]:
    """(frame position, row) of each entry with this hash; `hashes` is sorted."""
    value = np.uint64(wanted)
    low, high = np.searchsorted(hashes, value, "left"), np.searchsorted(hashes, value, "right")
    return unpacked(base, places[low:high])


def encode_keys(base: int, end: int, hashes: HashArray, places: HashArray, tag: int = 0) -> bytes:
    """The key index file: header, blocks of 256 entries each with its CRC, and the first hash of each block."""
    count = len(hashes)
    parts = [with_crc(_HEAD.pack(base, end, count, tag=tag))]
    for start in range(0, count, BLOCK_ENTRIES):
        block = hashes[start : start + BLOCK_ENTRIES].tobytes() + places[start : start + BLOCK_ENTRIES].tobytes()
        parts.append(block.ljust(BLOCK_ENTRIES * 16, b"\0") + crc32c(block).to_bytes(4, "little") + bytes(4))
    return b"".join([*parts, with_crc(hashes[::BLOCK_ENTRIES].tobytes())])


class KeyIndexFile:
    """A key index file, of which a part is kept in memory. An entry is found with one or two reads."""

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int, base: int, tag: int = 0) -> None:
        """Read the header and the first hash of each block; `read` takes a position in the file and a length.

        Errors: DamagedFile, Unsupported.
        """
        self._read = read
        head = without_crc(read(0, _HEAD_BYTES), "header")
        if not _HEAD.is_of(tag, head):
            raise DamagedFile("it is of another folder")
        own_base, self.end, self.count = _HEAD.unpack(head)
        self._base = base
        self._blocks = (self.count + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES
        at = _HEAD_BYTES + self._blocks * BLOCK_BYTES
        data = read(at, self._blocks * 8 + CRC_BYTES)
        if own_base != base or size_bytes != at + len(data) or len(data) != self._blocks * 8 + CRC_BYTES:
            raise DamagedFile("it is cut, or of another segment")
        self._fences: HashArray = np.frombuffer(without_crc(data, "fences"), _U64)

    def find(self, wanted: int) -> list[tuple[int, int]]:
        """(frame position, row) of each entry with this hash, in order of position. Errors: DamagedFile."""
        found: list[tuple[int, int]] = []
        block = max(int(np.searchsorted(self._fences, np.uint64(wanted), "left")) - 1, 0)
        while block < self._blocks and int(self._fences[block]) <= wanted:
            found.extend(_found(self._base, *self._block(block), wanted))
            block += 1
        return found

    def _block(self, number: int) -> tuple[HashArray, HashArray]:
        data = self._read(_HEAD_BYTES + number * BLOCK_BYTES, BLOCK_BYTES)
        entries = min(BLOCK_ENTRIES, self.count - number * BLOCK_ENTRIES)
        body = data[: entries * 16]
        if len(data) != BLOCK_BYTES or crc32c(body) != int.from_bytes(data[-8:-4], "little"):
            raise DamagedFile(f"block {number} is damaged")
        return np.frombuffer(body[: entries * 8], _U64), np.frombuffer(body[entries * 8 :], _U64)

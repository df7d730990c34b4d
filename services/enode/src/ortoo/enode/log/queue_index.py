"""The queue index of one segment as bytes: the positions of the batches by queue. docs/formats/log.md has the tables.

The file is a cache, which is rebuilt from the segment when it is missing or damaged.
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.disk.atomic_files import CRC_BYTES, DamagedFile, FileHead, with_crc, without_crc
from ortoo.enode.log.rows import ROW_BYTES, IndexRows

_HEAD = FileHead("queue index", b"ORTI", 1, "QQqIIII")
HEAD_BYTES = _HEAD.size + CRC_BYTES
_QUEUE = struct.Struct("<QIIqqqqQII")
_SLICE = struct.Struct("<QQIIQ")
_HOLE = struct.Struct("<QQ")
_NUMBER = struct.Struct("<q")

QueueKey = tuple[int, int]


class QueueEntry(NamedTuple):
    """The place of one queue's rows in the index file, and the offsets and times that they cover."""

    topic_id: int
    queue_id: int
    row_count: int
    begin_offset: int
    end_offset: int
    first_stored_at_ms: int
    last_stored_at_ms: int
    block_at: int
    block_crc: int

    @classmethod
    def of(cls, key: QueueKey, rows: IndexRows, block_at: int = 0, block_crc: int = 0) -> "QueueEntry":
        """The entry for `rows`; `block_at` and `block_crc` are 0 while the rows are in no index file."""
        times = rows.stored_at_ms
        return cls(*key, len(rows), rows.begin_offset, rows.end_offset, times[0], times[-1], block_at, block_crc)

    @property
    def block_bytes(self) -> int:
        """Length of the rows in the file."""
        return self.row_count * ROW_BYTES

    def last_position(self, data: bytes) -> int:
        """The position of the last batch; `data` has the bytes of the whole index file."""
        positions_at = self.block_at + self.row_count * _NUMBER.size
        return int(_NUMBER.unpack_from(data, positions_at + (self.row_count - 1) * _NUMBER.size)[0])


class SliceLocation(NamedTuple):
    """A checkpoint frame of the segment."""

    position: int
    checkpoint_id: int
    number: int
    total: int
    """The number of slices of the checkpoint; 0 in all but the last."""
    fold_from: int


@dataclass(slots=True, eq=False)
class IndexParts:
    """The parts of a segment's index."""

    rows: dict[QueueKey, IndexRows] = field(default_factory=dict)
    slices: list[SliceLocation] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    """(position, length) of damaged places."""


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """The index of a segment without its rows."""

    base: int
    end: int
    last_stored_at_ms: int
    queues: tuple[QueueEntry, ...]
    slices: tuple[SliceLocation, ...]
    holes: tuple[tuple[int, int], ...]
    """(position, length) of damaged places found when the index was made."""


def encode_index(
    base: int, end: int, last_stored_at_ms: int, parts: IndexParts, tag: int = 0
) -> tuple[SegmentContents, bytes]:
    """The index file of a segment, with the tag of its folder, and the contents that a reader decodes from it."""
    keys = sorted(key for key, rows in parts.rows.items() if len(rows))
    slices, holes = tuple(parts.slices), tuple(parts.holes)
    block_at = HEAD_BYTES + len(keys) * _QUEUE.size + len(slices) * _SLICE.size + len(holes) * _HOLE.size + CRC_BYTES
    entries: list[QueueEntry] = []
    blocks: list[bytes] = []
    for key in keys:
        rows = parts.rows[key]
        block = rows.encoded()
        entries.append(QueueEntry.of(key, rows, block_at, crc32c(block)))
        blocks.append(block)
        block_at += len(block)
    head = _HEAD.pack(base, end, last_stored_at_ms, len(keys), len(slices), len(holes), sum(map(len, blocks)), tag=tag)
    table = [_QUEUE.pack(*one, 0) for one in entries]
    table += [_SLICE.pack(*one) for one in slices]
    table += [_HOLE.pack(*one) for one in holes]
    data = with_crc(head) + with_crc(b"".join(table)) + b"".join(blocks)
    return SegmentContents(base, end, last_stored_at_ms, tuple(entries), slices, holes), data


def tables_bytes(head: bytes) -> int:
    """The number of bytes at the file's start that `decode_contents` needs. Errors: DamagedFile, Unsupported."""
    *_, queues, slices, holes, _ = _checked_head(head)
    return HEAD_BYTES + queues * _QUEUE.size + slices * _SLICE.size + holes * _HOLE.size + CRC_BYTES


def decode_contents(data: bytes, base: int, tag: int = 0) -> SegmentContents:
    """Read everything but the rows.

    Errors: Unsupported. DamagedFile when the bytes are bad, of another segment or of another folder.
    """
    own_base, end, last_stored_at_ms, queues, slices, _, _ = _checked_head(data)
    if own_base != base:
        raise DamagedFile(f"it is the index of the segment at {own_base}")
    if not _HEAD.is_of(tag, data):
        raise DamagedFile("it is an index of another folder")
    tables = without_crc(data[HEAD_BYTES : tables_bytes(data)], "tables")
    at_slices = queues * _QUEUE.size
    at_holes = at_slices + slices * _SLICE.size
    return SegmentContents(
        base,
        end,
        last_stored_at_ms,
        tuple(QueueEntry(*row[:9]) for row in _QUEUE.iter_unpack(tables[:at_slices])),
        tuple(SliceLocation(*row) for row in _SLICE.iter_unpack(tables[at_slices:at_holes])),
        tuple(_HOLE.iter_unpack(tables[at_holes:])),
    )


def decode_rows(entry: QueueEntry, block: bytes) -> IndexRows:
    """Read one queue's rows. Errors: DamagedFile."""
    if len(block) != entry.block_bytes or crc32c(block) != entry.block_crc:
        raise DamagedFile(f"the rows of topic {entry.topic_id:#x} queue {entry.queue_id} are damaged")
    return IndexRows.decoded(block)


def _checked_head(data: bytes) -> tuple[int, ...]:
    return _HEAD.unpack(without_crc(data[:HEAD_BYTES], "header"))

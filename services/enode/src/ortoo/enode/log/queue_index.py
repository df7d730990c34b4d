"""The queue index of one segment as bytes: which batches of which queues lie where. docs/formats/log.md has the tables.

The file is a cache: it is made anew from the segment when it is missing or damaged.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ortoo.common.errors import Unsupported
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.log.rows import ROW_BYTES, Rows

MAGIC = b"ORTI"
VERSION = 1

_HEAD = struct.Struct("<4sHHQQqIIII")
_HEAD_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _HEAD_CRC.size
_QUEUE = struct.Struct("<QIIqqqqQII")
_SLICE = struct.Struct("<QQIIQ")
_HOLE = struct.Struct("<QQ")

QueueKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """Where the rows of one queue lie in the index file, and what they cover."""

    topic_id: int
    queue_id: int
    row_count: int
    begin_offset: int
    end_offset: int
    first_stored_at_ms: int
    last_stored_at_ms: int
    block_at: int
    block_crc: int

    @property
    def block_bytes(self) -> int:
        """Length of the rows in the file."""
        return self.row_count * ROW_BYTES


@dataclass(frozen=True, slots=True)
class SliceAt:
    """A checkpoint frame of the segment."""

    position: int
    checkpoint_id: int
    number: int
    total: int
    """How many slices the checkpoint has; 0 in all but the last."""
    fold_from: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What is known about a segment without its rows."""

    base: int
    end: int
    last_stored_at_ms: int
    queues: tuple[QueueEntry, ...]
    slices: tuple[SliceAt, ...]
    holes: tuple[tuple[int, int], ...]
    """(position, length) of damaged places found when the index was made."""


class BadIndex(ValueError):
    """The file is not a whole queue index of this segment."""


def encode_index(
    base: int,
    end: int,
    last_stored_at_ms: int,
    rows_by_queue: Mapping[QueueKey, Rows],
    slices: Iterable[SliceAt],
    holes: Iterable[tuple[int, int]],
) -> tuple[Contents, bytes]:
    """The index file of a segment, and its contents as a reader will find them."""
    keys = sorted(key for key, rows in rows_by_queue.items() if len(rows))
    slices, holes = tuple(slices), tuple(holes)
    block_at = HEAD_BYTES + len(keys) * _QUEUE.size + len(slices) * _SLICE.size + len(holes) * _HOLE.size + 4
    entries: list[QueueEntry] = []
    table: list[bytes] = []
    blocks: list[bytes] = []
    for topic_id, queue_id in keys:
        rows = rows_by_queue[topic_id, queue_id]
        block = rows.encoded()
        entry = QueueEntry(
            topic_id,
            queue_id,
            len(rows),
            rows.begin_offset,
            rows.end_offset,
            rows.stored_at_ms[0],
            rows.stored_at_ms[-1],
            block_at,
            crc32c(block),
        )
        entries.append(entry)
        table.append(
            _QUEUE.pack(
                topic_id,
                queue_id,
                entry.row_count,
                entry.begin_offset,
                entry.end_offset,
                entry.first_stored_at_ms,
                entry.last_stored_at_ms,
                block_at,
                entry.block_crc,
                0,
            )
        )
        blocks.append(block)
        block_at += len(block)
    table += [_SLICE.pack(one.position, one.checkpoint_id, one.number, one.total, one.fold_from) for one in slices]
    table += [_HOLE.pack(*hole) for hole in holes]
    head = _HEAD.pack(
        MAGIC, VERSION, 0, base, end, last_stored_at_ms, len(keys), len(slices), len(holes), sum(map(len, blocks))
    )
    tables = b"".join(table)
    data = head + _HEAD_CRC.pack(crc32c(head)) + tables + crc32c(tables).to_bytes(4, "little") + b"".join(blocks)
    return Contents(base, end, last_stored_at_ms, tuple(entries), slices, holes), data


def tables_bytes(head: bytes) -> int:
    """How much of the file, from its start, `decode_contents` needs. Errors: BadIndex, Unsupported."""
    _, _, _, _, _, _, queues, slices, holes, _ = _checked_head(head)
    return HEAD_BYTES + int(queues * _QUEUE.size + slices * _SLICE.size + holes * _HOLE.size) + 4


def decode_contents(data: bytes, base: int) -> Contents:
    """Read everything but the rows. Errors: BadIndex when the bytes are damaged or of another segment; Unsupported."""
    _, _, _, own_base, end, last_stored_at_ms, queues, slices, holes, _ = _checked_head(data)
    if own_base != base:
        raise BadIndex(f"an index of the segment at {own_base}")
    length = tables_bytes(data)
    tables = data[HEAD_BYTES : length - 4]
    if len(data) < length or crc32c(tables) != int.from_bytes(data[length - 4 : length], "little"):
        raise BadIndex("the CRC of its tables does not match")
    at_slices = queues * _QUEUE.size
    at_holes = at_slices + slices * _SLICE.size
    return Contents(
        base,
        end,
        last_stored_at_ms,
        tuple(QueueEntry(*row[:9]) for row in _QUEUE.iter_unpack(tables[:at_slices])),
        tuple(SliceAt(*row) for row in _SLICE.iter_unpack(tables[at_slices:at_holes])),
        tuple(_HOLE.iter_unpack(tables[at_holes : at_holes + holes * _HOLE.size])),
    )


def decode_rows(entry: QueueEntry, block: bytes) -> Rows:
    """Read one queue's rows. Errors: BadIndex when they are damaged."""
    if len(block) != entry.block_bytes or crc32c(block) != entry.block_crc:
        raise BadIndex(f"the rows of topic {entry.topic_id:#x} queue {entry.queue_id} are damaged")
    return Rows.decoded(block)


def _checked_head(data: bytes) -> tuple[int, ...]:
    if len(data) < HEAD_BYTES or data[:4] != MAGIC:
        raise BadIndex("not an index file")
    if crc32c(data[: _HEAD.size]) != _HEAD_CRC.unpack_from(data, _HEAD.size)[0]:
        raise BadIndex("the CRC of its header does not match")
    fields: tuple[int, ...] = _HEAD.unpack_from(data)
    if fields[1] != VERSION:
        raise Unsupported(f"queue index of version {fields[1]}; this process knows {VERSION}")
    return fields

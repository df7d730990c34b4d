"""Where the log begins: written before a segment is deleted, so that a missing file is never taken for a deletion.

Segments below it are left-overs of a deletion that was interrupted; a segment that is missing above it is a loss.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.whole_files import Damaged, Head, read_whole, with_crc, without_crc, write_whole

FILE_NAME = "begin"
_HEAD = Head("record of the log's beginning", b"ORTB", 1, "QII")
_ROW = struct.Struct("<QIq")


@dataclass(frozen=True, slots=True)
class LogBegin:
    """What retention has left."""

    position: int
    """Everything below it may be gone."""
    queues: Mapping[tuple[int, int], int] | None
    """(topic id, queue id) to the first offset that is there; None where that is not known, as in a replica's copy."""

    def encoded(self) -> bytes:
        """The file's bytes."""
        rows = self.queues or {}
        head = _HEAD.pack(self.position, self.queues is not None, len(rows))
        return with_crc(head + b"".join(_ROW.pack(*key, offset) for key, offset in sorted(rows.items())))


def decode_log_begin(data: bytes) -> LogBegin | None:
    """Read the record; None when it is not whole. Errors: Unsupported when it is newer."""
    try:
        body = without_crc(data, "bytes")
        position, has_queues, count = _HEAD.unpack(body)
    except Damaged:
        return None
    if len(body) != _HEAD.size + count * _ROW.size:
        return None
    rows = {(topic_id, queue_id): offset for topic_id, queue_id, offset in _ROW.iter_unpack(body[_HEAD.size :])}
    return LogBegin(position, rows if has_queues else None)


def read_log_begin(disk: Disk, folder: Path) -> LogBegin | None:
    """The record in a store's folder; None in a store of an older version. Errors: Unsupported when it is newer."""
    return decode_log_begin(read_whole(disk, folder / FILE_NAME) or b"")


def write_log_begin(disk: Disk, folder: Path, begin: LogBegin) -> None:
    """Replace the record, durably; only then may a segment below it be removed. Errors: OSError."""
    write_whole(disk, folder / FILE_NAME, begin.encoded())

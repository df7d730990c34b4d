"""The begin of the log: written before a segment is deleted, so that a missing file is never taken for a deletion.

Segments below the begin are left-overs of an interrupted deletion. A missing segment above the begin is a loss.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ortoo.enode.disk.atomic_files import DamagedFile, FileHead, read_file, with_crc, without_crc, write_atomically
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.slots import SERIALS_NAME, read_slots, write_slots

FILE_NAME = "begin"
_HEAD = FileHead("record of the log's begin", b"ORTB", 1, "QII")
_ROW = struct.Struct("<QIq")
_SERIAL = FileHead("slot of the log's begin", b"ORTV", 1, "Q")
_PAIR = 2


@dataclass(frozen=True, slots=True)
class LogBegin:
    """The record of the position where the log begins after retention."""

    position: int
    """The log below it may be deleted."""
    queues: Mapping[tuple[int, int], int] | None
    """(topic id, queue id) to the first stored offset; None if unknown, as in a replica's copy."""

    def encoded(self, tag: int = 0) -> bytes:
        """The file's bytes, with the tag of its folder."""
        rows = self.queues or {}
        head = _HEAD.pack(self.position, self.queues is not None, len(rows), tag=tag)
        return with_crc(head + b"".join(_ROW.pack(*key, offset) for key, offset in sorted(rows.items())))


def decode_log_begin(data: bytes, tag: int = 0) -> LogBegin | None:
    """Read the record; None if it is incomplete or belongs to another folder.

    Errors: Unsupported when the record has a newer version.
    """
    try:
        body = without_crc(data, "bytes")
        if not _HEAD.is_of(tag, body):
            return None
        position, has_queues, count = _HEAD.unpack(body)
    except DamagedFile:
        return None
    if len(body) != _HEAD.size + count * _ROW.size:
        return None
    rows = {(topic_id, queue_id): offset for topic_id, queue_id, offset in _ROW.iter_unpack(body[_HEAD.size :])}
    return LogBegin(position, rows if has_queues else None)


def read_log_begin(disk: Disk, folder: Path, tag: int | None = None) -> LogBegin | None:
    """The record in a store's folder; None in a store of an older version.

    If the record is lost, belongs to another folder, or is an older copy, its position is read from the file `serials`.
    `tag` replaces the tag from the folder's identity.
    Errors: Unsupported when the record has a newer version.
    """
    tag = tag_of(disk, folder) if tag is None else tag
    begin = decode_log_begin(read_file(disk, folder / FILE_NAME) or b"", tag)
    written = read_slots(disk, folder / SERIALS_NAME, _SERIAL, tag, _PAIR)
    if written and (begin is None or begin.position < written[0]):
        return LogBegin(written[0], None)
    return begin


def keep_log_begin(disk: Disk, folder: Path, begin: LogBegin) -> None:
    """Write `begin`, the record with which the store was opened, unless the file has this record. Errors: OSError."""
    if decode_log_begin(read_file(disk, folder / FILE_NAME) or b"", tag_of(disk, folder)) != begin:
        write_log_begin(disk, folder, begin)


def write_log_begin(disk: Disk, folder: Path, begin: LogBegin) -> None:
    """Replace the record durably; a segment below it may be removed only afterwards. Errors: OSError."""
    tag = tag_of(disk, folder)
    write_atomically(disk, folder / FILE_NAME, begin.encoded(tag), uses_reserve=True)
    write_slots(disk, folder / SERIALS_NAME, _SERIAL, tag, _PAIR, begin.position)

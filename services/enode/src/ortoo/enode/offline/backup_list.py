"""The list of a store's backup: its store, the end of its log, and each segment with its SHA-256."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.json_files import read_json_file, write_json_file
from ortoo.enode.disk.log_begin import LogBegin, decode_log_begin

FILE_NAME = "backup"
VERSION = 1
CHUNK_BYTES = 4 << 20
TEMPORARY = ".tmp"
"""Suffix of the name of an incomplete file."""


@dataclass(frozen=True, slots=True)
class BackedUpSegment:
    """One segment of a backup."""

    used_bytes: int
    """The length of the log in it, which is the length in the backup."""
    file_bytes: int
    """The size of its file in a store."""
    sha256: str
    """The digest of the used bytes, in hexadecimal."""


@dataclass(slots=True)
class BackupList:
    """The contents of a folder with a backup."""

    cluster: str
    enode: str
    store_id: str
    """The id of the store that was backed up."""
    taken_at_ms: int
    """The start of the last backup, milliseconds since 1970-01-01 UTC."""
    end_position: int
    begin: LogBegin | None
    """The begin of the log, as the store recorded it."""
    segments: dict[int, BackedUpSegment] = field(default_factory=dict)
    """The segments by the position of their first byte, ascending."""
    log: str = ""
    """The fingerprint in the frames of its log, as in the store's identity."""

    def write(self, disk: Disk, folder: Path) -> None:
        """Replace the list durably. Errors: OSError."""
        segments = [[base, *asdict(one).values()] for base, one in self.segments.items()]
        begin = self.begin.encoded().hex() if self.begin is not None else ""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "log" or self.log}
        fields |= {"segments": segments, "begin": begin}
        write_json_file(disk, folder / FILE_NAME, VERSION, fields)


def is_empty(disk: Disk, folder: Path) -> bool:
    """Whether a folder is empty, possibly the root of a new file system."""
    return not set(disk.list(folder)) - {"lost+found"}


def read_backup_list(disk: Disk, folder: Path) -> BackupList | None:
    """The list in a folder; None when there is none. Errors: DataLoss, Unsupported."""
    return read_json_file(disk, folder / FILE_NAME, VERSION, "take another backup, in another folder", _from_fields)


def _from_fields(fields: Mapping[str, Any]) -> BackupList:
    segments = {int(base): BackedUpSegment(*row) for base, *row in fields["segments"]}
    begin = decode_log_begin(bytes.fromhex(fields["begin"]))
    return BackupList(**{**fields, "segments": segments, "begin": begin})


def copy_file(disk: Disk, source: Path, target: Path, length: int) -> str:
    """Copy the first `length` bytes of a file; returns their SHA-256.

    The bytes are durable, but not yet the new file's name.

    An existing file of that name is replaced in one step. Errors: OSError. DataLoss when the source is shorter.
    """
    temporary = target.with_name(target.name + TEMPORARY)
    if temporary.name in disk.list(target.parent):
        disk.remove(temporary)
    digest = hashlib.sha256()
    with closing(disk.open(temporary, create=True)) as out:
        position = 0
        for chunk in _chunks(disk, source, length):
            digest.update(chunk)
            position += out.write(position, [chunk])
        out.sync_data()
    disk.rename(temporary, target)
    return digest.hexdigest()


def _chunks(disk: Disk, source: Path, length: int) -> Iterator[bytes]:
    with closing(disk.open(source, writable=False)) as file:
        for position in range(0, length, CHUNK_BYTES):
            wanted = min(CHUNK_BYTES, length - position)
            chunk = file.read(position, wanted)
            if len(chunk) < wanted:
                raise DataLoss(f"{source} has {position + len(chunk)} bytes; expected {length}")
            yield chunk

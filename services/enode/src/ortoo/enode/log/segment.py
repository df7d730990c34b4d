"""Segments: the files of the log, each named by the position of its first byte."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ortoo.enode.disk.disk import Disk, File
from ortoo.enode.log.frame import ALIGNMENT_BYTES

SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
KEYS_SUFFIX = ".keys"
SPARE_SUFFIX = ".spare"
_NAME = re.compile(r"^(\d{20})\.(seg|idx|keys)$")


def segment_name(base: int, suffix: str = SUFFIX) -> str:
    """The file name of the segment that begins at position `base`, or of its index with that suffix."""
    return f"{base:020d}{suffix}"


def bases(names: list[str], suffix: str = SUFFIX) -> list[int]:
    """The first positions of all files with `suffix` among `names`, ascending."""
    found = (_NAME.match(name) for name in names)
    return sorted(int(match[1]) for match in found if match and f".{match[2]}" == suffix)


def remove_below(disk: Disk, folder: Path, position: int) -> int:
    """Remove the segments that begin below `position`, oldest first, with their index files; the number of files.

    The record of the log's begin is already beyond them, so a left-over is harmless. Errors: OSError for the first
    file that cannot be removed. The next call continues there.
    """
    gone = [
        (base, suffix)
        for suffix in (SUFFIX, INDEX_SUFFIX, KEYS_SUFFIX)
        for base in bases(disk.list(folder), suffix)
        if base < position and base % ALIGNMENT_BYTES == 0
    ]
    try:
        for base, suffix in sorted(gone):
            disk.remove(folder / segment_name(base, suffix))
    finally:
        if gone:
            disk.sync_directory(folder)
    return len(gone)


@dataclass(slots=True, eq=False)
class Segment:
    """One file of the log. It is opened at its first use."""

    disk: Disk
    folder: Path
    base: int
    """The log position of its first byte; 0 for a spare one."""
    limit: int
    """The highest log position at which it can end."""
    opened: File | None = None
    source: Path | None = None
    """The spare file that becomes this segment at its first write."""
    end: int | None = None
    """The begin of the next segment; None while this one is the last."""
    last_stored_at_ms: int = 0
    readers: int = 0
    retired: bool = False

    @property
    def path(self) -> Path:
        """The segment's file; the spare one until it has its name."""
        return self.source or self.folder / segment_name(self.base)

    @property
    def file(self) -> File:
        """The open file."""
        if self.opened is None:
            self.opened = self.disk.open(self.path)
        return self.opened

    def begin_at(self, position: int) -> None:
        """Let a spare segment begin at a log position."""
        self.base = position
        self.limit += position

    def install(self) -> None:
        """Give the spare file its name, durably. Done before the first byte is written; a second call does nothing."""
        if self.source is not None:
            self.disk.rename(self.source, self.folder / segment_name(self.base))
            self.disk.sync_directory(self.folder)
            self.source = None

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the log from `position`; fewer at the end of the file."""
        return self.file.read(position - self.base, length)

    def read_ahead(self, position: int, length: int) -> None:
        """Announce bytes of the log that are read soon."""
        self.file.read_ahead(position - self.base, length)

    def __enter__(self) -> None:
        """Open the file, and keep it open during a read. Errors: OSError."""
        _ = self.file
        self.readers += 1

    def __exit__(self, *_: object) -> None:
        """End a read; a retired segment closes with its last reader."""
        self.readers -= 1
        if self.retired and not self.readers:
            self.close()

    def retire(self) -> None:
        """Allow no new readers; close when the last one is done."""
        self.retired = True
        if not self.readers:
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None


def holding(segments: Sequence[Segment], position: int) -> Segment | None:
    """The segment that contains a position, or the last one if it is behind all; segments are in order of position."""
    return next((one for one in reversed(segments) if one.base <= position), None)

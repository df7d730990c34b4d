"""Segments: the files that the log consists of, each named by the position of its first byte."""

import re
from pathlib import Path

from ortoo.enode.disk.disk import Disk, File

SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
KEYS_SUFFIX = ".keys"
SPARE_SUFFIX = ".spare"
_NAME = re.compile(r"^(\d{20})\.(seg|idx|keys)$")


def segment_name(base: int) -> str:
    """The file name of the segment that begins at position `base`."""
    return f"{base:020d}{SUFFIX}"


def index_name(base: int) -> str:
    """The file name of that segment's queue index."""
    return f"{base:020d}{INDEX_SUFFIX}"


def keys_name(base: int) -> str:
    """The file name of that segment's key index."""
    return f"{base:020d}{KEYS_SUFFIX}"


def bases(names: list[str], suffix: str = SUFFIX) -> list[int]:
    """The first positions of all files with `suffix` among `names`, ascending."""
    found = (_NAME.match(name) for name in names)
    return sorted(int(match[1]) for match in found if match and f".{match[2]}" == suffix)


class Segment:
    """One file of the log. Its file is opened when first needed."""

    __slots__ = ("_file", "base", "disk", "end", "folder", "last_stored_at_ms", "limit", "readers", "retired", "source")

    def __init__(
        self, disk: Disk, folder: Path, base: int, limit: int, *, file: File | None = None, source: Path | None = None
    ) -> None:
        """The segment from `base` to `limit` at most; `source` is the spare file that becomes it when written first."""
        self.disk = disk
        self.folder = folder
        self.base = base
        self.limit = limit
        self.end: int | None = None
        """Where the next segment begins; None while this one is the last."""
        self.last_stored_at_ms = 0
        self.readers = 0
        self.retired = False
        self.source = source
        self._file = file

    @property
    def path(self) -> Path:
        """The segment's file."""
        return self.folder / segment_name(self.base)

    @property
    def file(self) -> File:
        """The open file."""
        if self._file is None:
            self._file = self.disk.open(self.path)
        return self._file

    def install(self) -> None:
        """Give the spare file its name, durably. Done before the first byte is written; a second call does nothing."""
        if self.source is not None:
            self.disk.rename(self.source, self.path)
            self.disk.sync_directory(self.folder)
            self.source = None

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the log from `position`; fewer at the end of the file."""
        return self.file.read(position - self.base, length)

    def acquire(self) -> None:
        """Open the file, and keep it open while somebody reads. Errors: OSError."""
        if self._file is None:
            self._file = self.disk.open(self.path)
        self.readers += 1

    def release(self) -> None:
        """The reader is done; a retired segment closes with its last reader."""
        self.readers -= 1
        if self.retired and not self.readers:
            self.close()

    def retire(self) -> None:
        """No new reader comes; close when the last one is done."""
        self.retired = True
        if not self.readers:
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

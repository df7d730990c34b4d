"""Segments: the files of the log, each named by the position of its first byte."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.enode.disk.disk import Disk, File
from ortoo.enode.disk.segment_files import ReadFile, SegmentFiles
from ortoo.enode.log.frame import ALIGNMENT_BYTES

SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
KEYS_SUFFIX = ".keys"
SPARE_SUFFIX = ".spare"
_NAME = re.compile(r"^(\d{20})\.(seg|idx|keys)$")


def segment_name(base: int, suffix: str = SUFFIX) -> str:
    """The name of a file of the segment that begins at position `base`; `suffix` distinguishes log and indexes."""
    return f"{base:020d}{suffix}"


def segment_bases(names: list[str], suffix: str = SUFFIX) -> list[int]:
    """The first positions of all files with `suffix` among `names`, ascending."""
    found = (_NAME.match(name) for name in names)
    return sorted(int(match[1]) for match in found if match and f".{match[2]}" == suffix)


def remove_below(disk: Disk, folder: Path, position: int) -> int:
    """Remove the segments below `position`, oldest first, with their index files; returns the number of files.

    The recorded begin of the log is already `position` or more, so a left-over is harmless. Errors: OSError for the
    first file that cannot be removed. The next call continues with this file.
    """
    gone = [
        (base, suffix)
        for suffix in (SUFFIX, INDEX_SUFFIX, KEYS_SUFFIX)
        for base in segment_bases(disk.list(folder), suffix)
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
    """One file of the log.

    It is read through the store's cache of open files, without write access. It is written through a separate
    descriptor, which stays open as long as the log may grow in this segment.
    """

    files: SegmentFiles
    folder: Path
    base: int
    """The log position of its first byte; 0 for a spare one."""
    limit: int
    """The highest log position at which it can end."""
    source: Path | None = None
    """The spare file that becomes this segment at its first write."""
    end: int | None = None
    """The begin of the next segment; None while this one is the last."""
    last_stored_at_ms: int = 0
    is_retired: bool = False
    is_reusable: bool = False
    """Whether its file may become a later segment: this process wrote it, and no body in it resembles a frame."""
    is_reused: bool = False
    """Whether its file holds bytes of an earlier segment, which the log overwrites."""
    _reading: ReadFile = field(init=False)
    _writing: File | None = None

    def __post_init__(self) -> None:
        """Create the file for readers; it is not opened yet."""
        self._reading = self.files.file(self.path)

    @property
    def path(self) -> Path:
        """The path of the segment's file, which is a spare file until `install` renames it."""
        return self.source or self.folder / segment_name(self.base)

    @property
    def writer(self) -> File:
        """The file, open until `stop_writing`; one caller at a time. Errors: OSError, NoDescriptor."""
        if self._writing is None:
            self._writing = self.files.open_to_write(self.path)
        return self._writing

    def create(self, *, is_reused: bool = False) -> None:
        """Make the file of a spare segment with its whole size, synced.

        It has zeros, or with `is_reused` the bytes of the earlier segment that it was. Errors: OSError, NoDescriptor.
        """
        self.is_reused = is_reused
        file = self._writing = self.files.open_to_write(self.path, create=not is_reused)
        try:
            file.allocate(self.limit)
            file.sync_data()
        except OSError:
            self.stop_writing()
            self.files.disk.remove(self.path)
            raise

    def stop_writing(self) -> None:
        """Close the file for writing. The written bytes are already synced, or are not needed."""
        if self._writing is not None:
            self.files.close_written(self._writing)
            self._writing = None

    def place_at(self, position: int) -> None:
        """Let a spare segment begin at a log position."""
        self.base = position
        self.limit += position

    def unplace(self) -> None:
        """Let a placed spare, to which no frame was written, be a spare again."""
        self.limit -= self.base
        self.base, self.end = 0, None

    def install(self) -> None:
        """Rename the spare file to the segment's name, durably, before the first write. A second call does nothing.

        It may be called again after an error. Errors: OSError, NoDescriptor.
        """
        if self.source is None:
            return
        disk, name = self.files.disk, segment_name(self.base)
        if self.source.name != name:
            disk.rename(self.source, self.folder / name)
            self.source = self._reading.path = self.folder / name
        disk.sync_directory(self.folder)
        self.source = None

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the log from `position`; fewer at the end of the file. Errors: OSError, NoDescriptor."""
        return self._reading.read(position - self.base, length)

    def read_ahead(self, position: int, length: int) -> None:
        """Announce bytes of the log that will be read soon. Errors: OSError, NoDescriptor."""
        self._reading.read_ahead(position - self.base, length)

    def size_bytes(self) -> int:
        """The size of its file. Errors: OSError, NoDescriptor."""
        return self._reading.size_bytes()

    def retire(self) -> None:
        """Keep no descriptor open; the file is closed when its last reader is done."""
        self.is_retired = True
        self._reading.retire()
        self.stop_writing()


def segment_at(segments: Sequence[Segment], position: int) -> Segment | None:
    """The segment that contains `position`; the last segment if `position` is behind all. `segments` are in order."""
    return next((one for one in reversed(segments) if one.base <= position), None)

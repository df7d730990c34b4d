"""A disk in memory that can show its state after a power cut.

disk = MemoryDisk(record=True)
...                                      # let a store work on it
after = disk.crashed(Randomness(7))      # the disk after the power cut
"""

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ortoo.common.errors import Conflict
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import ZEROS, Buffer, DiskSpace
from ortoo.testing.disks.disk_image import (
    CrashOutcome,
    CreateFile,
    DiskImage,
    MakeFolder,
    Operation,
    RemoveFile,
    RenameFile,
    ResizeFile,
    SyncData,
    SyncFolder,
    WriteFile,
)

USUAL_OUTCOME = CrashOutcome()


class MemoryFile:
    """An open file of a `MemoryDisk`; it outlives its name, as on a real disk."""

    def __init__(self, disk: "MemoryDisk", number: int, path: Path, *, writable: bool) -> None:
        """Open file `number` of `disk`; `path` is for messages."""
        self._disk = disk
        self._number = number
        self._path = path
        self._writable = writable
        self._closed = False

    @property
    def number(self) -> int:
        """The number of the file on its disk, independent of its name."""
        return self._number

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after another; on a full disk, the part that fits is written before the error."""
        self._check(writing=True)
        data = b"".join(buffers)
        room = self._disk.size_limit_of(self._number, position + len(data))
        if room < position + len(data):
            self._disk.apply(WriteFile(self._number, position, data[: max(0, room - position)]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._disk.apply(WriteFile(self._number, position, data))
        return len(data)

    def read(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""
        self._check()
        return self._disk.read(self._number, position, length)

    def zero_ahead(self, position: int) -> None:
        """Write zeros as a real disk does; zeros over zeros are no operation, so that runs stay short."""
        self._check(writing=True)
        if not ZEROS.startswith(data := self._disk.content(self._number, position, len(ZEROS))):
            self._disk.apply(WriteFile(self._number, position, bytes(len(data))))

    def read_ahead(self, position: int, length: int) -> None:
        """Do nothing: it has no effect here."""

    def sync_data(self) -> None:
        """Make everything written so far durable."""
        self._check()
        self._disk.apply(SyncData(self._number))

    def sync_failed(self) -> None:
        """Act as a failing device: nothing becomes durable, and later syncs do not write the lost bytes."""
        self._disk.apply(SyncData(self._number, failed=True))

    def size_bytes(self) -> int:
        """The file's size."""
        self._check()
        return self._disk.size_bytes(self._number)

    def allocate(self, length: int) -> None:
        """Grow the file to `length` zero bytes; never shrinks it."""
        self._check(writing=True)
        if self._disk.size_limit_of(self._number, length) < length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        if length > self._disk.size_bytes(self._number):
            self._disk.apply(ResizeFile(self._number, length))

    def truncate(self, length: int) -> None:
        """Truncate or zero-extend the file."""
        self._check(writing=True)
        self._disk.apply(ResizeFile(self._number, length))

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._disk.open_files[self._number] -= 1

    def _check(self, *, writing: bool = False) -> None:
        if self._closed or (writing and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))


class MemoryDisk:
    """Files in memory, with the promises of `Disk` and no others. May be used from several threads."""

    read_files_max = 1
    """So that a store that reads two segments alternately opens and closes a file each time."""

    def __init__(self, *, capacity_bytes: int = 1 << 40, record: bool = False, image: DiskImage | None = None) -> None:
        """A disk of `capacity_bytes`; with `record` every operation is kept in `operations`."""
        self.capacity_bytes = capacity_bytes
        self.operations: list[Operation] = []
        self.image = image if image is not None else DiskImage()
        self._record = record
        self.open_files: Counter[int] = Counter()
        """The number of descriptors of each open file."""
        self._locked: set[Path] = set()
        self._mutex = threading.RLock()

    @classmethod
    def replayed(cls, operations: Iterable[Operation]) -> "MemoryDisk":
        """The disk after these operations."""
        image = DiskImage()
        for operation in operations:
            image.apply(operation)
        return cls(image=image)

    def after_crash(
        self, choice: Randomness, outcome: CrashOutcome = USUAL_OUTCOME, *, record: bool = False
    ) -> "MemoryDisk":
        """Another disk, as a power cut now would leave this one; `choice` decides which unsynced changes arrived."""
        with self._mutex:
            return MemoryDisk(
                capacity_bytes=self.capacity_bytes, record=record, image=self.image.after_crash(choice, outcome)
            )  # fmt: skip

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> MemoryFile:
        """Open a file; with `create` it must not exist yet."""
        with self._mutex:
            number = self.image.number_of(path)
            if create:
                if number is not None:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
                if path.parent not in self.image.folders:
                    raise _missing(path)
                number = self.image.files_made + 1
                self.apply(CreateFile(path, number))
            elif number is None:
                raise _missing(path)
            self.open_files[number] += 1
            return MemoryFile(self, number, path, writable=writable)

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; empty when the folder does not exist."""
        with self._mutex:
            found = self.image.folders.get(folder)
            below = {one.name for one in self.image.folders if one.parent == folder and one != folder}
            return sorted({*found.current, *below}) if found is not None else []

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably."""
        with self._mutex:
            for one in (*reversed(folder.parents), folder):
                if one not in self.image.folders:
                    self.apply(MakeFolder(one))

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""
        with self._mutex:
            if self.image.number_of(source) is None or target.parent not in self.image.folders:
                raise _missing(source)
            if source.parent != target.parent:
                raise OSError(errno.EXDEV, "this disk renames within a folder only", str(source))
            self.apply(RenameFile(source, target))

    def remove(self, path: Path) -> None:
        """Remove a file's name."""
        with self._mutex:
            if self.image.number_of(path) is None:
                raise _missing(path)
            self.apply(RemoveFile(path))

    def is_shared(self, path: Path) -> bool:
        """Whether the file is open; it has one name."""
        with self._mutex:
            number = self.image.number_of(path)
            if number is None:
                raise _missing(path)
            return self.open_files[number] > 0

    def sync_directory(self, folder: Path) -> None:
        """Make created, renamed and removed names in this folder durable."""
        with self._mutex:
            if folder not in self.image.folders:
                raise _missing(folder)
            self.apply(SyncFolder(folder))

    def lock(self, folder: Path) -> ExitStack:
        """Take the folder. Errors: Conflict when another holder has it."""
        with self._mutex:
            if folder not in self.image.folders:
                raise _missing(folder)
            if folder in self._locked:
                raise Conflict(f"{folder} is in use by another process: stop it, or choose another folder")
            self._locked.add(folder)
        held = ExitStack()
        held.callback(self._locked.discard, folder)
        return held

    def space(self, folder: Path) -> DiskSpace:
        """The bytes that can still be written; the number of files has no limit."""
        with self._mutex:
            return DiskSpace(max(0, self.capacity_bytes - self.image.used_bytes()), self.capacity_bytes)

    def inode(self, path: Path) -> tuple[int, int] | None:
        """Which file or folder a path leads to; a disk after a crash is another device."""
        with self._mutex:
            folder, number = self.image.folders.get(path), self.image.number_of(path)
            found = id(folder) if folder is not None else number
            return None if found is None else (id(self.image), found)

    def apply(self, operation: Operation) -> None:
        """Apply one operation, and record it if requested."""
        with self._mutex:
            self.image.apply(operation)
            if self._record:
                self.operations.append(operation)

    def read(self, number: int, position: int, length: int) -> bytes:
        """Bytes of a file as programs see them; a disk with faults may fail here."""
        return self.content(number, position, length)

    def content(self, number: int, position: int, length: int) -> bytes:
        """Bytes of a file as programs see them, for the disk itself."""
        with self._mutex:
            return bytes(self.image.contents[number].current[position : position + length])

    def size_bytes(self, number: int) -> int:
        """The size of a file as programs see it."""
        with self._mutex:
            return len(self.image.contents[number].current)

    def size_limit_of(self, number: int, length: int) -> int:
        """The size, `length` at most, to which a file can grow now."""
        with self._mutex:
            size = len(self.image.contents[number].current)
            if length <= size:
                return length
            return min(length, size + max(0, self.capacity_bytes - self.image.used_bytes()))


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

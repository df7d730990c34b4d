"""A disk with injected faults, around any other disk: full, failing, lying, flipping bits.

* `fail_sync()`: the next sync fails with EIO, and the written bytes are lost.
* `full_after(10_000)`: 10,000 more bytes, then a short write and ENOSPC.
* `lose_syncs = True`: syncs answer at once and do nothing.
"""

import errno
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Buffer, Disk, DiskSpace, File, opening
from ortoo.testing.disks.disk_image import CrashOutcome
from ortoo.testing.disks.memory_disk import USUAL_OUTCOME, MemoryDisk, MemoryFile

UNLIMITED = 1 << 62


class FaultyFile:
    """A file of a `FaultyDisk`."""

    def __init__(self, disk: "FaultyDisk", file: File, path: Path) -> None:
        """Wrap `file`; `disk` decides the faults."""
        self.path = path
        """Its name now; renaming changes it."""
        self._disk = disk
        self._file = file

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, or the bytes that the disk still takes before it fails."""
        length = sum(map(len, buffers))
        allowed, error = self._disk.consume_space(length)
        if allowed < length:
            flat = b"".join(buffers)[:allowed]
            if flat:
                self._file.write(position, [flat])
            raise _fault(error, self.path)
        return self._file.write(position, buffers)

    def read(self, position: int, length: int) -> bytes:
        """Read, with the flipped bits of this file."""
        return self._disk.apply_flips(self.path, position, self._file.read(position, length))

    def zero_ahead(self, position: int) -> None:
        """As the file inside; zeros take none of the limited space."""
        self._file.zero_ahead(position)

    def read_ahead(self, position: int, length: int) -> None:
        """Do nothing: it has no effect here."""

    def sync_data(self) -> None:
        """Sync, fail, or succeed without syncing, as the disk decides."""
        error = self._disk.next_sync_error()
        if error:
            if isinstance(self._file, MemoryFile):
                self._file.sync_failed()
            raise _fault(error, self.path)
        self._disk.gate.wait()
        if not self._disk.lose_syncs:
            self._file.sync_data()

    def size_bytes(self) -> int:
        """The file's size."""
        return self._file.size_bytes()

    def allocate(self, length: int) -> None:
        """Reserve space, or fail when the disk has too little left."""
        grown = max(0, length - self._file.size_bytes())
        allowed, error = self._disk.consume_space(grown)
        if allowed < grown:
            raise _fault(error, self.path)
        self._file.allocate(length)

    def truncate(self, length: int) -> None:
        """Truncate or zero-extend the file."""
        self._file.truncate(length)

    def close(self) -> None:
        """Release the file."""
        self._file.close()


class FaultyDisk:
    """Any disk, with faults that tests inject. Without faults it behaves as the disk inside."""

    def __init__(self, disk: Disk) -> None:
        """Wrap `disk`, without faults."""
        self.inner = disk
        self.lose_syncs = False
        """Syncs of files do nothing and report success."""
        self.lose_folder_syncs = False
        """Syncs of folders do nothing and report success."""
        self.gate = threading.Event()
        """Syncs of files wait while this event is cleared: a slow disk."""
        self.gate.set()
        self.syncs = 0
        """The number of requested syncs of files."""
        self.open_error = 0
        """Every operation that needs a descriptor fails with this error, such as errno.EMFILE; 0 = none does."""
        self._mutex = threading.Lock()
        self._sync_errors: list[int] = []
        self._remove_errors: list[int] = []
        self._bytes_left = UNLIMITED
        self._write_error = errno.ENOSPC
        self._flips: dict[Path, list[tuple[int, int]]] = {}
        self._files: weakref.WeakSet[FaultyFile] = weakref.WeakSet()

    def fail_sync(self, *, times: int = 1, after: int = 0, error: int = errno.EIO) -> None:
        """Let syncs of files fail: the next `times` after `after` successful ones."""
        with self._mutex:
            self._sync_errors += [0] * after + [error] * times

    def fail_remove(self, *, times: int = 1, after: int = 0, error: int = errno.EIO) -> None:
        """Let removals of names fail: the next `times` after `after` successful ones."""
        with self._mutex:
            self._remove_errors += [0] * after + [error] * times

    def full_after(self, length: int, *, error: int = errno.ENOSPC) -> None:
        """Take `length` more bytes, then fail; the write that crosses the limit is a short one."""
        with self._mutex:
            self._bytes_left, self._write_error = length, error

    def heal(self) -> None:
        """Accept bytes and syncs again; lost bytes stay lost."""
        with self._mutex:
            self._bytes_left = UNLIMITED
            self._sync_errors.clear()
            self._remove_errors.clear()
            self._flips.clear()
        self.lose_syncs = self.lose_folder_syncs = False
        self.open_error = 0
        self.gate.set()

    @property
    def read_files_max(self) -> int:
        """The number of the disk inside."""
        return self.inner.read_files_max

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Let every read of this byte of a file return it with one bit changed."""
        with self._mutex:
            self._flips.setdefault(path, []).append((position, 1 << bit))

    def after_crash(self, choice: Randomness, outcome: CrashOutcome = USUAL_OUTCOME) -> MemoryDisk:
        """The disk after a power cut now; the disk inside must be a `MemoryDisk`."""
        if not isinstance(self.inner, MemoryDisk):
            raise TypeError("only a MemoryDisk knows what a power cut leaves")
        return self.inner.after_crash(choice, outcome)

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> FaultyFile:
        """Open a file; with `create` it must not exist yet."""
        self._need_descriptor(path)
        file = FaultyFile(self, self.inner.open(path, create=create, writable=writable), path)
        with self._mutex:
            self._files.add(file)
        return file

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; empty when the folder does not exist."""
        self._need_descriptor(folder)
        return self.inner.list(folder)

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents."""
        self.inner.make_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""
        self.inner.rename(source, target)
        with self._mutex:
            for file in self._files:
                if file.path == source:
                    file.path = target

    def remove(self, path: Path) -> None:
        """Remove a file's name, or fail."""
        with self._mutex:
            error = self._remove_errors.pop(0) if self._remove_errors else 0
        if error:
            raise _fault(error, path)
        self.inner.remove(path)

    def is_shared(self, path: Path) -> bool:
        """As the disk inside; it needs a descriptor."""
        self._need_descriptor(path)
        return self.inner.is_shared(path)

    def sync_directory(self, folder: Path) -> None:
        """Make names durable, or succeed without doing so."""
        if not self.lose_folder_syncs:
            self.inner.sync_directory(folder)

    def lock(self, folder: Path) -> ExitStack:
        """Take the folder. Errors: Conflict when another holds it."""
        self._need_descriptor(folder)
        return self.inner.lock(folder)

    def space(self, folder: Path) -> DiskSpace:
        """The space; free is the smaller of the disk's free space and the fault's limit."""
        space = self.inner.space(folder)
        if self._write_error != errno.ENOSPC:
            return space
        return replace(space, free_bytes=min(space.free_bytes, self._bytes_left))

    def inode(self, path: Path) -> tuple[int, int] | None:
        """Which file or folder a path leads to."""
        return self.inner.inode(path)

    def _need_descriptor(self, path: Path) -> None:
        if self.open_error:
            with opening(path):
                raise _fault(self.open_error, path)

    def consume_space(self, length: int) -> tuple[int, int]:
        """The number of these bytes that the disk takes, and the error for the rest."""
        with self._mutex:
            allowed = min(length, self._bytes_left)
            if self._bytes_left < UNLIMITED:
                self._bytes_left -= allowed
            return allowed, self._write_error

    def next_sync_error(self) -> int:
        """The error of the next sync; 0 if it works."""
        with self._mutex:
            self.syncs += 1
            return self._sync_errors.pop(0) if self._sync_errors else 0

    def apply_flips(self, path: Path, position: int, data: bytes) -> bytes:
        """`data`, read from `position` of a file, with the flipped bits."""
        flips = self._flips.get(path)
        if not flips:
            return data
        changed = bytearray(data)
        for at, mask in flips:
            if position <= at < position + len(data):
                changed[at - position] ^= mask
        return bytes(changed)


def _fault(error: int, path: Path) -> OSError:
    return OSError(error, os.strerror(error), str(path))

"""A disk with faults on demand, around any other: full, failing, lying, flipping bits.

disk = FaultyDisk(MemoryDisk())
disk.fail_sync()                     # the next sync says EIO, and what was written is not to be trusted any more
disk.full_after(10_000)              # so many more bytes, then a short write and ENOSPC
disk.lose_syncs = True               # syncs answer at once and do nothing
"""

import errno
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Buffer, Disk, File, opening
from ortoo.testing.disks.disk_image import Fate
from ortoo.testing.disks.memory_disk import USUAL_FATE, MemoryDisk, MemoryFile

UNLIMITED = 1 << 62


class FaultyFile:
    """A file of a `FaultyDisk`."""

    def __init__(self, disk: "FaultyDisk", file: File, path: Path) -> None:
        """Wrap `file`; `disk` says what goes wrong."""
        self.path = path
        """Its name now; renaming changes it."""
        self._disk = disk
        self._file = file

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, or as many bytes as the disk still takes before it fails."""
        length = sum(map(len, buffers))
        allowed, error = self._disk.spend(length)
        if allowed < length:
            flat = b"".join(buffers)[:allowed]
            if flat:
                self._file.write(position, [flat])
            raise _fault(error, self.path)
        return self._file.write(position, buffers)

    def read(self, position: int, length: int) -> bytes:
        """Read; bits that were flipped on the way from the disk are."""
        return self._disk.flipped(self.path, position, self._file.read(position, length))

    def read_ahead(self, position: int, length: int) -> None:
        """Nothing is gained by it here."""

    def sync_data(self) -> None:
        """Make everything durable, or fail, or only say so."""
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
        """Reserve space, or fail when the disk takes so many bytes no more."""
        grown = max(0, length - self._file.size_bytes())
        allowed, error = self._disk.spend(grown)
        if allowed < grown:
            raise _fault(error, self.path)
        self._file.allocate(length)

    def truncate(self, length: int) -> None:
        """Cut or zero-extend the file."""
        self._file.truncate(length)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class FaultyDisk:
    """Any disk, with faults that are switched on by hand. Without them it behaves as the disk inside."""

    def __init__(self, disk: Disk) -> None:
        """Wrap `disk`; no fault is on."""
        self.inner = disk
        self.lose_syncs = False
        """Syncs of files do nothing and say that they did."""
        self.lose_folder_syncs = False
        """Syncs of folders do nothing and say that they did."""
        self.gate = threading.Event()
        """Syncs of files wait while this is cleared: a slow disk."""
        self.gate.set()
        self.syncs = 0
        """How many syncs of files were asked for."""
        self.open_error = 0
        """Everything that needs a descriptor is refused with this error, such as errno.EMFILE; 0 = there are some."""
        self._mutex = threading.Lock()
        self._sync_errors: list[int] = []
        self._remove_errors: list[int] = []
        self._bytes_left = UNLIMITED
        self._write_error = errno.ENOSPC
        self._flips: dict[Path, list[tuple[int, int]]] = {}
        self._files: weakref.WeakSet[FaultyFile] = weakref.WeakSet()

    def fail_sync(self, *, times: int = 1, after: int = 0, error: int = errno.EIO) -> None:
        """Let syncs of files fail: the next `times` behind the next `after` good ones."""
        with self._mutex:
            self._sync_errors += [0] * after + [error] * times

    def fail_remove(self, *, times: int = 1, after: int = 0, error: int = errno.EIO) -> None:
        """Let removals of names fail: the next `times` behind the next `after` good ones."""
        with self._mutex:
            self._remove_errors += [0] * after + [error] * times

    def full_after(self, length: int, *, error: int = errno.ENOSPC) -> None:
        """Take so many more bytes, then fail; the write that crosses the limit is a short one."""
        with self._mutex:
            self._bytes_left, self._write_error = length, error

    def heal(self) -> None:
        """Take bytes and syncs again; what was lost stays lost."""
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
        """As many as of the disk inside."""
        return self.inner.read_files_max

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Let every read of this byte of a file come back with one bit changed."""
        with self._mutex:
            self._flips.setdefault(path, []).append((position, 1 << bit))

    def crashed(self, choice: Randomness, fate: Fate = USUAL_FATE) -> MemoryDisk:
        """What a power cut now would leave; the disk inside is a `MemoryDisk`."""
        if not isinstance(self.inner, MemoryDisk):
            raise TypeError("only a MemoryDisk knows what a power cut leaves")
        return self.inner.crashed(choice, fate)

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

    def sync_directory(self, folder: Path) -> None:
        """Make names durable, or only say so."""
        if not self.lose_folder_syncs:
            self.inner.sync_directory(folder)

    def lock(self, folder: Path) -> ExitStack:
        """Take the folder. Errors: Conflict when another holds it."""
        self._need_descriptor(folder)
        return self.inner.lock(folder)

    def free_bytes(self, folder: Path) -> int:
        """How much can still be written: the smaller of what the disk has and what the fault allows."""
        free = self.inner.free_bytes(folder)
        return min(free, self._bytes_left) if self._write_error == errno.ENOSPC else free

    def _need_descriptor(self, path: Path) -> None:
        if self.open_error:
            with opening(path):
                raise _fault(self.open_error, path)

    def spend(self, length: int) -> tuple[int, int]:
        """How many of so many bytes the disk takes, and the error for the rest."""
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

    def flipped(self, path: Path, position: int, data: bytes) -> bytes:
        """What arrives when `data` is read from `position` of a file."""
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

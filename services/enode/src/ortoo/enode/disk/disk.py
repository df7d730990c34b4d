"""The interface to the disk: all file operations of the store go through it.

`RealDisk` is the production one. The tests' memory and faulty disks give the same guarantees, which one conformance
suite checks. The guarantees are only those of a POSIX file system. Until `sync_data` returns, written bytes may reach
the disk in any order, wholly, partly or not at all. Until `sync_directory` of its folder returns, a crash may undo a
created, renamed or removed name.
"""

import contextlib
import errno
import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ortoo.common.errors import Conflict, Overloaded
from ortoo.common.machine.descriptors import EXHAUSTED, Descriptors

Buffer = bytes | bytearray | memoryview
ZEROS = bytes(1 << 20)
"""The zeros that are written at once behind the end of a log."""
ZEROED_BYTES_MAX = 64 << 10
"""Zeros are written behind groups of frames of at most this size. They may double the written bytes."""
BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX of Linux
FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of a disk, or a quota, without free space."""
_F_SETSIG = 10
"""The command of Linux that chooses the signal for a broken lease."""
RETRY_AFTER_MS = 1_000
"""The retry delay for a call that needs a descriptor when none is free."""


class NoDescriptor(Overloaded):
    """A file cannot be opened now, because the process or the machine has no free descriptor."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The space of a file system."""

    free_bytes: int
    size_bytes: int
    free_inodes: int = 0
    inodes: int = 0
    """The number of files that it can have; 0 = it has no limit."""


class File(Protocol):
    """One open file.

    Concurrency: one writer at a time and any number of readers, from any thread.
    Durability: written bytes are durable when a later `sync_data` has returned, and not before.
    Errors: OSError. After a failed `sync_data`, only bytes that are written and synced again are durable.
    """

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after another, from `position` on; return the number of bytes.

        The bytes are not durable until `sync_data` returns; a crash may keep any part of them.
        Errors: OSError (ENOSPC when the disk is full). The number of written bytes is then unknown.
        """

    def zero_ahead(self, position: int) -> None:
        """Write zeros over the next allocated bytes; the caller has stored nothing at `position` or behind it.

        The first write of a block changes the file's metadata. A sync then waits for the journal of the file system,
        too, and so for the writes of other programs. Does nothing on a full disk. Errors: OSError.
        """

    def read(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def read_ahead(self, position: int, length: int) -> None:
        """Announce that these bytes are read soon, so that the disk may prefetch them; returns at once."""

    def sync_data(self) -> None:
        """Make everything written so far durable, with the file's size.

        Errors: OSError. Then the file's tail must never be trusted again.
        """

    def size_bytes(self) -> int:
        """The file's size."""

    def allocate(self, length: int) -> None:
        """Reserve space and grow the file to `length` zero bytes. Errors: OSError ENOSPC when the disk is full."""

    def truncate(self, length: int) -> None:
        """Cut or zero-extend the file to `length` bytes."""

    def close(self) -> None:
        """Close the file; this makes nothing durable."""


class Disk(Protocol):
    """Operations on folders, and on the names of files in folders.

    Concurrency: any thread may call. Callers take turns for one name.
    Durability: a changed name is durable when a later `sync_directory` of its folder has returned, and not before.
    Errors: OSError. A call that needs a descriptor when none is free raises NoDescriptor; the disk has not failed.
    """

    @property
    def read_files_max(self) -> int:
        """The maximum number of segment files that a store on this disk keeps open for reading; at least 1."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; with `create` it must not exist yet.

        Errors: FileNotFoundError, FileExistsError, NoDescriptor.
        """

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; empty when the folder does not exist. Errors: NoDescriptor."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents unless they exist."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step; durable after `sync_directory` of the folder."""

    def remove(self, path: Path) -> None:
        """Remove a file's name; durable after `sync_directory` of the folder."""

    def is_shared(self, path: Path) -> bool:
        """Whether another name or an open descriptor leads to the file too, or the disk cannot tell.

        A reader of such a file would see it change, so it must be removed and not overwritten. Errors: OSError.
        """

    def sync_directory(self, folder: Path) -> None:
        """Make created, renamed and removed names in this folder durable. Errors: NoDescriptor."""

    def lock(self, folder: Path) -> ExitStack:
        """Lock the folder for this process, until the returned stack is closed or the process ends.

        While it is locked, `sync_directory` of it needs no further descriptor.
        Errors: NoDescriptor. Conflict when another process holds the lock.
        """

    def space(self, folder: Path) -> DiskSpace:
        """The space of the file system with this folder. Errors: OSError."""

    def inode(self, path: Path) -> tuple[int, int] | None:
        """The device and number of the file or folder at a path now; None if the path does not exist."""


class RealFile:
    """A file of the operating system. `read` may be called from several threads at once."""

    def __init__(self, descriptor: int, path: Path) -> None:
        """Own an open descriptor; `path` is for messages."""
        self._descriptor = descriptor
        self._path = path
        self._zeroed = 0
        """The end of the zeros that were written ahead."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers with as few calls as the system allows, and continue after short writes."""
        total = 0
        for start in range(0, len(buffers), BUFFERS_PER_WRITE_MAX):
            chunk = buffers[start : start + BUFFERS_PER_WRITE_MAX]
            length = sum(map(len, chunk))
            written = os.pwritev(self._descriptor, chunk, position + total)
            if written != length:
                self._write_rest(position + total, chunk, written, length)
            total += length
        return total

    def _write_rest(self, position: int, chunk: Sequence[Buffer], written: int, length: int) -> None:
        """Write the rest after a short write; signals and full disks cause these, so they are rare."""
        flat = memoryview(b"".join(chunk))
        while written < length:
            step = os.pwrite(self._descriptor, flat[written:], position + written)
            if step == 0:
                raise OSError(errno.EIO, "the disk accepts no bytes", str(self._path))
            written += step

    def zero_ahead(self, position: int) -> None:
        """Write the next zeros when the end of the log has reached the end of the earlier ones."""
        if position >= self._zeroed:
            # If larger groups came in between, they would have covered most of the zeros.
            length = len(ZEROS) if position - self._zeroed <= ZEROED_BYTES_MAX else ZEROED_BYTES_MAX
            self._zeroed = min(position + length, max(self.size_bytes(), position))
            try:
                self.write(position, (memoryview(ZEROS)[: self._zeroed - position],))
            except OSError as error:
                if error.errno not in FULL:  # sparse and copied-on-write files need space for zeros
                    raise

    def read(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""
        data = os.pread(self._descriptor, length, position)
        while 0 < len(data) < length and (more := os.pread(self._descriptor, length - len(data), position + len(data))):
            data += more
        return data

    def read_ahead(self, position: int, length: int) -> None:
        """Let the system read these bytes into its cache in the background."""
        os.posix_fadvise(self._descriptor, position, length, os.POSIX_FADV_WILLNEED)

    def sync_data(self) -> None:
        """Make everything written so far durable, with the file's size."""
        os.fdatasync(self._descriptor)

    def size_bytes(self) -> int:
        """The file's size."""
        return os.fstat(self._descriptor).st_size

    def allocate(self, length: int) -> None:
        """Reserve space and grow the file to `length` zero bytes."""
        os.posix_fallocate(self._descriptor, 0, length)

    def truncate(self, length: int) -> None:
        """Cut or zero-extend the file to `length` bytes."""
        os.ftruncate(self._descriptor, length)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Raise NoDescriptor if an `open` in the block fails because no descriptor is free."""
    try:
        yield
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise no_descriptor(path, error.errno or 0) from error
        raise


def no_descriptor(path: Path, number: int) -> NoDescriptor:
    """The error for a failed `open`; `number` is one of the error numbers in EXHAUSTED."""
    reasons = {
        errno.EMFILE: f"all {Descriptors.of_process().limit} file descriptors of this process are in use; raise its "
        "limit (ulimit -n, LimitNOFILE=), or close connections",
        errno.ENFILE: "all file handles of the machine are in use; raise fs.file-max, or find the process with most",
        errno.ENOMEM: "the system has no memory for another open file",
    }
    return NoDescriptor(f"{path} cannot be opened: {reasons[number]}", retry_after_ms=RETRY_AFTER_MS)


class RealDisk:
    """The disk of the operating system."""

    def __init__(self, read_files_max: int = 0) -> None:
        """A store keeps at most `read_files_max` segment files open; 0 = derived from the process's descriptors."""
        self.read_files_max = read_files_max or Descriptors.of_process().files
        self._locked: dict[Path, int] = {}
        """The folders that this process has locked, and their descriptors."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        """Open a file; with `create` it must not exist yet."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        with opening(path):
            return RealFile(os.open(path, flags, 0o640), path)

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; empty when the folder does not exist."""
        try:
            with opening(folder):
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self.sync_directory(folder.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file's name."""
        os.remove(path)

    def is_shared(self, path: Path) -> bool:
        """Count the names, and ask the system for a lease, which it gives only for the only open descriptor."""
        if not hasattr(fcntl, "F_SETLEASE"):
            return True
        with opening(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(2):  # An `open` that found the file by an earlier name may wait for the first lease.
                # This signal is ignored, the usual one ends the process. The end of a lease forgets the choice.
                fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return os.fstat(descriptor).st_nlink != 1
        except OSError:  # another descriptor is open, or the file system has no leases
            return True
        finally:
            os.close(descriptor)

    def sync_directory(self, folder: Path) -> None:
        """Make created, renamed and removed names in this folder durable."""
        if (locked := self._locked.get(folder)) is not None:
            os.fsync(locked)
            return
        descriptor = _opened_folder(folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, folder: Path) -> ExitStack:
        """Lock the folder itself, which leaves no file behind and ends with the process."""
        descriptor = _opened_folder(folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Conflict(f"{folder} is in use by another process: stop it, or choose another folder") from None
            raise
        self._locked[folder] = descriptor
        lock = ExitStack()
        lock.callback(os.close, descriptor)
        lock.callback(self._locked.pop, folder)
        return lock

    def space(self, folder: Path) -> DiskSpace:
        """The space of the file system with this folder, as `df` counts it: without the blocks reserved for root."""
        state = os.statvfs(folder)
        usable = state.f_blocks - state.f_bfree + state.f_bavail
        return DiskSpace(state.f_bavail * state.f_frsize, usable * state.f_frsize, state.f_favail, state.f_files)

    def inode(self, path: Path) -> tuple[int, int] | None:
        """The device and number of the file or folder at a path now; None if the path does not exist."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino


def _opened_folder(folder: Path) -> int:
    with opening(folder):
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

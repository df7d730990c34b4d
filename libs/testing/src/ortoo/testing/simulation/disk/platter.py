"""Files in memory with injected stops in the middle of work and injected failures of single calls."""

import errno
import os
from collections.abc import Callable

from ortoo.testing.disks.disk_image import (
    CreateFile,
    DiskImage,
    Operation,
    RemoveFile,
    RenameFile,
    ResizeFile,
    SyncFolder,
    WriteFile,
)
from ortoo.testing.disks.memory_disk import MemoryDisk

WRITES = (WriteFile, ResizeFile)
RENAMING = (CreateFile, RenameFile, RemoveFile)
NAMES = (*RENAMING, SyncFolder)


class PowerFailure(BaseException):
    """The machine stopped before this call; no error handler of the product may catch it."""


class FaultInjectionDisk(MemoryDisk):
    """A `MemoryDisk` with fault injection."""

    def __init__(self, *, capacity_bytes: int, image: DiskImage | None = None) -> None:
        """A disk of `capacity_bytes`; with `image` it continues with that content."""
        super().__init__(capacity_bytes=capacity_bytes, image=image)
        self.operations_left: int | None = None
        """The machine stops after this number of changes; None = it does not stop."""
        self.torn: Callable[[int], int] = lambda length: length
        """The number of bytes that arrive of the write during which the machine stops."""
        self.failing_reads = 0
        """The number of next reads that fail."""
        self.failing_writes = 0
        """The number of next writes that fail without writing anything."""
        self.failing_names = 0
        """The number of next changes of names that fail."""
        self.named: Callable[[], object] = lambda: None
        """Called when a file gets, changes or loses its name."""
        self.applying: Callable[[Operation], object] = lambda operation: None
        """Called before each change."""
        self.misdirect_bytes = 0
        """The next write lands this far from its position and reports success."""
        self.written_bytes = 0
        """The total length of all writes since the process started."""

    def apply(self, operation: Operation) -> None:
        """Apply one operation, unless the machine stops or the disk fails before."""
        if self.operations_left is not None:
            if self.operations_left <= 0:
                raise PowerFailure
            self.operations_left -= 1
            if not self.operations_left and isinstance(operation, WriteFile):
                kept = self.torn(len(operation.data))
                operation = WriteFile(operation.number, operation.position, operation.data[:kept])
        if isinstance(operation, WRITES) and self.failing_writes > 0:
            self.failing_writes -= 1
            raise _eio()
        if isinstance(operation, NAMES) and self.failing_names > 0:
            self.failing_names -= 1
            raise _eio()
        if self.misdirect_bytes and isinstance(operation, WriteFile):
            size = self.size_bytes(operation.number)
            place = (operation.position + self.misdirect_bytes) % max(1, size - len(operation.data))
            operation, self.misdirect_bytes = WriteFile(operation.number, place, operation.data), 0
        self.applying(operation)
        super().apply(operation)
        if isinstance(operation, WriteFile):
            self.written_bytes += len(operation.data)
        if isinstance(operation, RENAMING):
            self.named()

    def read(self, number: int, position: int, length: int) -> bytes:
        """Bytes of a file as programs see them. Errors: OSError, where reads fail."""
        if self.failing_reads > 0:
            self.failing_reads -= 1
            raise _eio()
        return super().read(number, position, length)


def _eio() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))

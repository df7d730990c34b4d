"""Files in memory that can be stopped in the middle of a piece of work, and of which single calls fail."""

import errno
import os
from collections.abc import Callable

from ortoo.testing.disks.disk_image import (
    Create,
    DiskImage,
    Operation,
    Remove,
    Rename,
    Resize,
    SyncFolder,
    Write,
)
from ortoo.testing.disks.memory_disk import MemoryDisk

WRITES = (Write, Resize)
RENAMING = (Create, Rename, Remove)
NAMES = (*RENAMING, SyncFolder)


class PowerIsOff(BaseException):
    """The machine stopped before this call; no error handler of the product is to see it."""


class Platter(MemoryDisk):
    """A `MemoryDisk` below which a hand can be held."""

    def __init__(self, *, capacity_bytes: int, image: DiskImage | None = None) -> None:
        """With room for `capacity_bytes`; an `image` is gone on with."""
        super().__init__(capacity_bytes=capacity_bytes, image=image)
        self.operations_left: int | None = None
        """After so many changes the machine stops; None = it goes on."""
        self.torn: Callable[[int], int] = lambda length: length
        """How many bytes of the write at which the machine stops arrive."""
        self.failing_reads = 0
        """So many of the next reads fail."""
        self.failing_writes = 0
        """So many of the next writes fail, and nothing of them arrives."""
        self.failing_names = 0
        """So many of the next changes of names fail."""
        self.named: Callable[[], object] = lambda: None
        """Called when a file got, changed or lost its name."""
        self.misdirect_bytes = 0
        """The next write goes so far beside its place, and says that all is well."""
        self.written_bytes = 0
        """The length of all writes since the process started."""

    def do(self, operation: Operation) -> None:
        """Let one thing happen, unless the machine stops or the disk fails before it does."""
        if self.operations_left is not None:
            if self.operations_left <= 0:
                raise PowerIsOff
            self.operations_left -= 1
            if not self.operations_left and isinstance(operation, Write):
                kept = self.torn(len(operation.data))
                operation = Write(operation.number, operation.position, operation.data[:kept])
        if isinstance(operation, WRITES) and self.failing_writes > 0:
            self.failing_writes -= 1
            raise _eio()
        if isinstance(operation, NAMES) and self.failing_names > 0:
            self.failing_names -= 1
            raise _eio()
        if self.misdirect_bytes and isinstance(operation, Write):
            size = self.size_bytes(operation.number)
            place = (operation.position + self.misdirect_bytes) % max(1, size - len(operation.data))
            operation, self.misdirect_bytes = Write(operation.number, place, operation.data), 0
        super().do(operation)
        if isinstance(operation, Write):
            self.written_bytes += len(operation.data)
        if isinstance(operation, RENAMING):
            self.named()

    def read(self, number: int, position: int, length: int) -> bytes:
        """Bytes of a file as programs see them. Errors: OSError, where reads are to fail."""
        if self.failing_reads > 0:
            self.failing_reads -= 1
            raise _eio()
        return super().read(number, position, length)


def _eio() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))

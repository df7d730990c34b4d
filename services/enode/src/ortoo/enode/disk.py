"""The seam to the disk: everything the store does to files goes through here.

`RealDisk` is the production one; the tests' memory and faulty disks keep the same promises, which one conformance
suite checks. The promises are those of a POSIX file system and no more: written bytes may reach the disk in any order,
wholly, partly or not at all, until `sync_data` returns; a created, renamed or removed name may be undone by a crash
until `sync_directory` of its folder returns.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ortoo.common.errors import Conflict

Buffer = bytes | bytearray | memoryview
BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX of Linux


class File(Protocol):
    """One open file. One writer at a time; any number of readers beside it."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after another, from `position` on; return the number of bytes.

        Durability: none until `sync_data` returns; a crash may keep any part of it.
        Errors: OSError (ENOSPC when the disk is full); how much was written is then unknown.
        """

    def read(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def sync_data(self) -> None:
        """Make everything written so far durable, with the file's size. An OSError means: never trust this file's tail again."""

    def size_bytes(self) -> int:
        """The file's size."""

    def allocate(self, length: int) -> None:
        """Reserve space and grow the file to `length` zero bytes; raises OSError ENOSPC when there is none."""

    def truncate(self, length: int) -> None:
        """Cut or zero-extend the file to `length` bytes."""

    def close(self) -> None:
        """Give the file back; nothing is made durable by it."""


class DirectoryLock(Protocol):
    """The exclusive right to a store folder, held until released or until the process ends."""

    def release(self) -> None:
        """Give the right back."""


class Disk(Protocol):
    """Folders and names."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; with `create` it must not exist yet. Errors: FileNotFoundError, FileExistsError."""

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; empty when the folder does not exist."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents; nothing happens when it is there."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step; durable after `sync_directory` of the folder."""

    def remove(self, path: Path) -> None:
        """Remove a file's name; durable after `sync_directory` of the folder."""

    def sync_directory(self, folder: Path) -> None:
        """Make created, renamed and removed names in this folder durable."""

    def lock(self, folder: Path) -> DirectoryLock:
        """Take the folder for this process. Errors: Conflict when another process holds it."""

    def free_bytes(self, folder: Path) -> int:
        """How much can still be written below this folder."""

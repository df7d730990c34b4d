"""The open segment files of one store: a bounded cache of files to read, and the files to write.

A log has any number of segments, and a process has a limited number of descriptors. A file is opened for reading when
it is needed, and stays open until the cache needs its place. A file in use by a reader in any thread is never closed.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Self

from ortoo.enode.disk.disk import Disk, File, NoDescriptor


class ReadFile:
    """One file that any thread may read; `SegmentFiles` opens and closes it."""

    __slots__ = ("_file", "_files", "_is_opening", "_is_retired", "_lock", "_users", "_was_read", "path")

    def __init__(self, files: "SegmentFiles", path: Path) -> None:
        self.path = path
        """The path of the file; it may change while no reader uses the file."""
        self._files = files
        self._lock = files.lock
        self._file: File | None = None
        self._users = 0
        self._was_read = False
        """Whether it was read since the cache last looked for a file to close."""
        self._is_opening = False
        self._is_retired = False

    @property
    def is_open(self) -> bool:
        """Whether the file has a descriptor."""
        return self._file is not None

    def read(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file. Errors: OSError, NoDescriptor."""
        file = self.begin()
        try:
            return file.read(position, length)
        finally:
            self.end()

    def read_ahead(self, position: int, length: int) -> None:
        """Announce bytes that are read soon. Errors: OSError, NoDescriptor."""
        file = self.begin()
        try:
            file.read_ahead(position, length)
        finally:
            self.end()

    def size_bytes(self) -> int:
        """The file's size. Errors: OSError, NoDescriptor."""
        file = self.begin()
        try:
            return file.size_bytes()
        finally:
            self.end()

    def begin(self) -> File:
        """Keep the file open until `end`; call `end` once for each `begin`. Errors: OSError, NoDescriptor."""
        with self._lock:
            if (file := self._file) is not None:
                self._users += 1
                self._was_read = True
                return file
        return self._files.opened_for(self)

    def end(self) -> None:
        """End a read that `begin` started."""
        with self._lock:
            self._users -= 1
            if self._is_retired or self._files.waiting:
                self._files.released(self)

    def retire(self) -> None:
        """Close the file when its last reader is done. From now on it is open only during reads."""
        with self._lock:
            self._is_retired = True
            self._files.released(self)


class SegmentFiles:
    """Opens the segment files of one store, and closes those that were not read for a long time."""

    def __init__(self, disk: Disk, most: int = 0) -> None:
        """Keep at most `most` files open for reading; 0 = as many as the disk allows.

        A reader waits while all open files are in use. A file is in use only during a read, and no read waits for
        another.
        """
        self.disk = disk
        self.most = most or disk.read_files_max
        self.opened = 0
        """The number of times that a file was opened for reading."""
        self.evicted = 0
        """The number of times that a file was closed to open another one."""
        self.waiting = 0
        """The number of readers that wait for a place, or for a file that another reader opens."""
        self.lock = threading.Lock()
        """Held during changes of the cache, and never while a file is read or opened."""
        self._changed = threading.Condition(self.lock)
        self._open: OrderedDict[ReadFile, None] = OrderedDict()
        """The open files, and those that are being opened."""
        self._written: set[File] = set()

    @property
    def count(self) -> int:
        """The number of open files."""
        return len(self._open) + len(self._written)

    def file(self, path: Path) -> ReadFile:
        """A file for reading; it is not opened yet."""
        return ReadFile(self, path)

    # reading

    def opened_for(self, wanted: ReadFile) -> File:
        """Open a file and keep it open until `ReadFile.end`. Only `ReadFile.begin` calls this."""
        with self.lock:
            while wanted._file is None and not self._has_place(wanted):
                self.waiting += 1
                self._changed.wait()
                self.waiting -= 1
            if (file := wanted._file) is not None:
                wanted._users += 1
                return file
            self._open[wanted] = None
            wanted._is_opening = True
        try:
            file = self._opened(wanted.path)
        finally:
            with self.lock:
                wanted._is_opening = False
                if file is None:
                    del self._open[wanted]
                else:
                    wanted._file, wanted._users = file, 1
                if self.waiting:
                    self._changed.notify_all()
        return file

    def released(self, one: ReadFile) -> None:
        """Close a retired file without readers, and wake the waiting readers. The caller holds the lock."""
        if one._is_retired and not one._users:
            self._close(one)
        if self.waiting:
            self._changed.notify_all()

    def _has_place(self, wanted: ReadFile) -> bool:
        """Whether the file can be opened now; if necessary, an unused file is closed for it."""
        if wanted._is_opening:
            return False
        return len(self._open) < self.most or self._evict()

    def _opened(self, path: Path) -> File:
        """Open a file; if no descriptor is free, close an unused file of this cache for it."""
        self.opened += 1
        try:
            return self.disk.open(path, writable=False)
        except NoDescriptor:
            with self.lock:
                if not self._evict():
                    raise
        return self.disk.open(path, writable=False)

    def _evict(self) -> bool:
        """Close an unused file; a file that was read since the last call gets a second chance."""
        for _ in range(2 * len(self._open)):
            one = next(iter(self._open))
            if one._file is not None and not one._users and not one._was_read:
                self._close(one)
                self.evicted += 1
                return True
            one._was_read = False
            self._open.move_to_end(one)
        return False

    def _close(self, one: ReadFile) -> None:
        file, one._file = one._file, None
        if file is not None:
            del self._open[one]
            file.close()

    # writing

    def open_to_write(self, path: Path, *, create: bool = False) -> File:
        """A file for writing, open until `close_written`. Errors: OSError, NoDescriptor."""
        file = self.disk.open(path, create=create)
        self._written.add(file)
        return file

    def close_written(self, file: File) -> None:
        """Close a file that is no longer written."""
        self._written.discard(file)
        file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all unused files. A later read opens its file again."""
        with self.lock:
            for one in [one for one in self._open if not one._users]:
                self._close(one)
        while self._written:
            self._written.pop().close()

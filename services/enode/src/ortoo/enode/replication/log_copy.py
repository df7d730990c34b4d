"""A replica's copy of a log: the same segment files with the same bytes, so that a store can be opened on it.

Every method blocks; they run in a thread, one after another.
"""

import itertools
from contextlib import closing
from pathlib import Path

from ortoo.common.errors import Conflict
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.disk.clean_stop import forget_clean_stop, read_clean_stop
from ortoo.enode.disk.disk import DirectoryLock, Disk, File
from ortoo.enode.disk.identity import FILE_NAME as IDENTITY_NAME
from ortoo.enode.disk.identity import Identity, encode_identity, read_identity
from ortoo.enode.disk.tide_mark import TideMark, read_tide_mark
from ortoo.enode.disk.whole_files import read_part, write_whole
from ortoo.enode.log.segment import bases, segment_name
from ortoo.enode.replication.log_bytes import TAIL_BYTES, LogBytes


class LogCopy:
    """The copy in one folder, which it has to itself."""

    def __init__(self, disk: Disk, folder: Path, cluster: str, enode: str) -> None:
        """Take the folder and go on behind what is known to be on its disk. Errors: Conflict, DataLoss, OSError."""
        disk.make_folder(folder)
        self._disk = disk
        self._folder = folder
        self._lock: DirectoryLock = disk.lock(folder)
        self._segment: File | None = None
        self._segment_position = -1
        self._tide_mark = TideMark(disk, folder)
        try:
            self.identity = self._identity(cluster, enode)
            self.position = self._cut_behind_durable()
        except BaseException:
            self._lock.release()
            raise

    @property
    def store_id(self) -> str:
        """The store that this is a copy of; empty while there is none."""
        return self.identity.store_id if self.identity else ""

    def tail(self) -> bytes:
        """The last bytes of the copy, at most TAIL_BYTES and of one segment."""
        starts = [base for base in bases(self._disk.list(self._folder)) if base < self.position]
        if not starts:
            return b""
        begin = max(starts[-1], self.position - TAIL_BYTES)
        path = self._folder / segment_name(starts[-1])
        return read_part(self._disk, path, begin - starts[-1], self.position - begin)

    def tail_crc32c(self) -> tuple[int, int]:
        """CRC and length of `tail`."""
        tail = self.tail()
        return (crc32c(tail) if tail else 0), len(tail)

    def claim(self, identity: Identity) -> None:
        """Say that it is a copy of that store. Errors: Conflict when it is one of another."""
        if self.identity is None:
            write_whole(self._disk, self._folder / IDENTITY_NAME, encode_identity(identity))
            self.identity = identity
        elif self.identity.store_id != identity.store_id:
            raise Conflict(
                f"{self._folder} is a copy of store {self.identity.store_id}, and the enode has {identity.store_id}: "
                "choose another folder, or move this one away"
            )

    def write(self, part: LogBytes) -> None:
        """Write bytes to where they belong, durably. Errors: Conflict when they do not follow, OSError."""
        if self.position and part.position != self.position:
            raise Conflict(f"bytes for position {part.position} came, and the copy ends at {self.position}")
        file = self._file(part.segment_position, part.segment_bytes)
        file.write(part.position - part.segment_position, [part.data])
        file.sync_data()
        self.position = part.end_position
        self._tide_mark.write(self.position)

    def forget_below(self, begin_position: int) -> None:
        """Delete the segments that lie wholly below, as the enode has done."""
        starts = bases(self._disk.list(self._folder))
        for base, following in itertools.pairwise(starts):
            if following <= begin_position:
                self._disk.remove(self._folder / segment_name(base))

    def close(self) -> None:
        """Give the folder back."""
        if self._segment is not None:
            self._segment.close()
        self._tide_mark.close()
        self._lock.release()

    def _identity(self, cluster: str, enode: str) -> Identity | None:
        found = read_identity(self._disk, self._folder)
        if found is not None:
            found.check_owner(self._folder, cluster, enode, "a replica of ")
        return found

    def _cut_behind_durable(self) -> int:
        """Where the copy ends; what an interrupted write, or another life of this folder, left behind it is removed."""
        disk, folder = self._disk, self._folder
        clean = read_clean_stop(disk, folder)
        end = max(read_tide_mark(disk, folder), clean.end_position if clean else 0)
        forget_clean_stop(disk, folder)
        starts = bases(disk.list(folder))
        for base in starts:
            if base >= end:
                disk.remove(folder / segment_name(base))
        kept = [base for base in starts if base < end]
        if kept:
            with closing(disk.open(folder / segment_name(kept[-1]))) as file:
                size = file.size_bytes()
                file.truncate(end - kept[-1])
                if size > end - kept[-1]:
                    file.allocate(size)
                file.sync_data()
        disk.sync_directory(folder)
        return end if kept else 0

    def _file(self, segment_position: int, segment_bytes: int) -> File:
        if self._segment is None or self._segment_position != segment_position:
            if self._segment is not None:
                self._segment.close()
            path = self._folder / segment_name(segment_position)
            is_new = path.name not in self._disk.list(self._folder)
            self._segment = self._disk.open(path, create=is_new)
            self._segment_position = segment_position
            if is_new:
                self._segment.allocate(segment_bytes)
                self._disk.sync_directory(self._folder)
        return self._segment

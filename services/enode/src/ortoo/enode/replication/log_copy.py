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
from ortoo.enode.disk.log_begin import LogBegin, read_log_begin, write_log_begin
from ortoo.enode.disk.tide_mark import TideMark, read_tide_mark
from ortoo.enode.disk.whole_files import read_part, write_whole
from ortoo.enode.index.survey import find_cut, survey
from ortoo.enode.log.segment import Segment, bases, remove_below, segment_name
from ortoo.enode.recovery.opening import rewrite
from ortoo.enode.recovery.strays import strays_among
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
        self._is_agreed = False
        """Whether the enode sent bytes for right behind the copy's end, after comparing its tail."""
        try:
            self.identity = self._identity(cluster, enode)
            self.position = self._end_of_frames()
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
        if not self._is_agreed:
            if self.position:
                self._cut_behind(self.position)
            else:
                write_log_begin(self._disk, self._folder, LogBegin(part.position, None))
            self._is_agreed = True
        file = self._file(part.segment_position, part.segment_bytes)
        file.write(part.position - part.segment_position, [part.data])
        file.sync_data()
        self.position = part.end_position
        self._tide_mark.write(self.position)

    def forget_below(self, begin_position: int) -> None:
        """Delete the segments that lie wholly below, as the enode has done."""
        starts = bases(self._disk.list(self._folder))
        gone = [following for _, following in itertools.pairwise(starts) if following <= begin_position]
        if gone:
            write_log_begin(self._disk, self._folder, LogBegin(gone[-1], None))
            remove_below(self._disk, self._folder, gone[-1])

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

    def _end_of_frames(self) -> int:
        """Where the copy ends: behind its last whole frame, or what a tide mark knows to be on disk. Nothing is cut.

        In the folder of a former enode everything behind the tide mark may be acknowledged. So all of it is offered to
        the enode that is to be followed; only when that one goes on right behind, `write` cuts what no frame covers.
        """
        disk, folder = self._disk, self._folder
        clean = read_clean_stop(disk, folder)
        durable = max(read_tide_mark(disk, folder), clean.end_position if clean else 0)
        begin = read_log_begin(disk, folder)
        starts = [base for base in bases(disk.list(folder)) if begin is None or base >= begin.position]
        strays = strays_among(disk, folder, starts)
        kept = [base for base in starts if base not in strays]
        if not kept:
            return 0
        last = Segment(disk, folder, kept[-1], kept[-1])
        try:
            last.limit = last.base + last.file.size_bytes()
            found = survey(last.read, last.base, last.limit)
            found.durable_below = max(found.durable_below, durable)
            end = find_cut(found, last.read, last.base, last.limit)
            rewrite(last, max(last.base, min(found.durable_below, end)), end)
            last.file.sync_data()
            return end
        finally:
            last.close()

    def _cut_behind(self, position: int) -> None:
        """Remove what lies behind the end that the enode has agreed to: no whole frame, so never acknowledged."""
        disk, folder = self._disk, self._folder
        forget_clean_stop(disk, folder)
        for base in bases(disk.list(folder)):
            if base < position < base + self._size_bytes(base):
                with closing(disk.open(folder / segment_name(base))) as file:
                    size = file.size_bytes()
                    file.truncate(position - base)
                    file.allocate(size)
                    file.sync_data()

    def _size_bytes(self, base: int) -> int:
        with closing(self._disk.open(self._folder / segment_name(base), writable=False)) as file:
            return file.size_bytes()

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

"""Spare segments: space is reserved before frames for it are accepted, so a full disk is detected early.

A spare is a file of zeros, or the file of a deleted segment. Writes to the latter cost less, because its pages are in
memory and its blocks are written. Decision 30 (docs/adr) explains why its old bytes do no harm.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from ortoo.common.errors import Overloaded
from ortoo.enode.disk.disk import FULL, NoDescriptor
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.segment import SPARE_SUFFIX, Segment, remove_below

REUSED_MAX = 4
"""Maximum number of deleted segments that are kept as spares: retention may delete several at once."""


@dataclass(eq=False)
class SpareSegments:
    """Makes spare segments, which are synced files of zeros, and keeps one of the usual size ready."""

    files: SegmentFiles
    folder: Path
    work: DiskWork
    segment_bytes: int
    """The usual size."""
    headroom_bytes: int
    """Free space that is reserved for state records."""
    is_short: bool = False
    """Whether the disk had no space for the last spare."""
    _available: list[Segment] = field(default_factory=list)
    """Spares that were made ahead, or were returned or not fetched by a cancelled caller."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """The numbers of the next spares; two threads never get the same one."""
    _making: bool = False
    _unused: frozenset[Segment] = frozenset()
    """The reused spares that no segment needed at the last call of `drop_unused`."""

    async def prepare(self) -> bool:
        """Make a spare before it is needed; returns whether a spare is ready. A full disk raises no error here."""
        if self._fitting(self.segment_bytes) is not None:
            return True
        if self._making:
            return False
        self._making = True
        try:
            await self.work.run(self._make, self.segment_bytes, self.headroom_bytes)
        except Overloaded:
            return False
        finally:
            self._making = False
        return True

    async def take(self, frame_bytes: int, *, is_state: bool) -> Segment:
        """A spare with room for a frame of `frame_bytes` and the mark at the segment's end.

        State changes may use the reserved space (`headroom_bytes`), in a smaller segment. Errors: Overloaded when the
        disk is full.
        """
        usual = max(self.segment_bytes, frame_bytes)
        while (spare := self._fitting(frame_bytes if is_state else usual)) is None:
            try:
                await self.work.run(self._make, usual, self.headroom_bytes)
            except Overloaded:
                if not is_state:
                    raise
                small = max(frame_bytes, min(self.segment_bytes, self.headroom_bytes // 8 // 64 * 64), 4096)
                await self.work.run(self._make, small, 0)
        self._available.remove(spare)
        return spare

    async def take_named(self, position: int) -> Segment:
        """A spare, placed at a log position and renamed to the segment name of that position.

        Errors: OSError, and as `take`.
        """
        segment = await self.take(self.segment_bytes, is_state=True)
        segment.place_at(position)
        await self.work.run(segment.install)
        return segment

    async def room_bytes(self) -> int:
        """Bytes that can be written behind the active segment: spares and the free space of the disk."""
        ready_bytes = sum(one.limit for one in self._available)
        return ready_bytes + (await self.work.run(self.files.disk.space, self.folder)).free_bytes

    def reuse_or_remove(self, segments: Sequence[Segment], position: int) -> int:
        """Keep some of `segments` as spares, and remove the other files of segments below `position`.

        Returns the number of removed files. The caller has recorded the begin of the log and retired them. `segments`
        have index files, because a segment without one may still be truncated. Errors: OSError.
        """
        self.reuse(segments)
        return remove_below(self.files.disk, self.folder, position)

    def reuse(self, segments: Sequence[Segment]) -> None:
        """Keep the files that may be overwritten. After an error of the disk, a file is not kept.

        A nearly full disk gets its space back. Otherwise the kept files would be filled with messages while the
        reserved space for state records is used up.
        """
        for segment in segments:
            kept = sum(one.is_reused for one in self._available)
            if kept >= REUSED_MAX or not segment.is_reusable or segment.end is None:
                continue
            if not self.segment_bytes * 7 <= (segment.end - segment.base) * 8 <= self.segment_bytes * 8:
                continue  # a short file needs new blocks, and no segment would use the end of a longer one
            spare = self._next(self.segment_bytes)
            try:
                if self._is_nearly_full(self.segment_bytes, self.headroom_bytes):
                    return
                self.files.disk.rename(segment.path, spare.path)
                if self.files.disk.is_shared(spare.path):
                    self._remove([spare])
                else:
                    self._create(spare, is_reused=True)
            except (OSError, NoDescriptor):
                self._remove([spare])

    async def drop_unused(self) -> None:
        """Remove the reused spares that were not used since the last call, because they hold deleted messages."""
        dropped = self._unused.intersection(self._available)
        for one in dropped:
            self._available.remove(one)  # in place, because a thread may append to the list
        self._unused = frozenset(one for one in self._available if one.is_reused)
        if dropped:
            await self.work.run(self._remove, dropped)

    def put_back(self, spare: Segment) -> None:
        """Return an unused spare, which may have a place already. A segment that has its name is only forgotten."""
        if spare.path.suffix == SPARE_SUFFIX:
            spare.unplace()
            self._available.append(spare)
        else:
            spare.retire()

    def close(self) -> None:
        """Remove unused spares. The next start removes the spares for which this fails."""
        self._remove(self._available)
        self._available.clear()

    def _remove(self, spares: Iterable[Segment]) -> None:
        for spare in spares:
            spare.retire()
            with contextlib.suppress(OSError):
                self.files.disk.remove(spare.path)

    def _fitting(self, size_bytes: int) -> Segment | None:
        return next((one for one in self._available if one.limit >= size_bytes), None)

    def _make(self, size_bytes: int, headroom_bytes: int) -> None:
        """Make one more ready spare, for the caller, or for the next caller if this one is cancelled meanwhile."""
        if self._is_nearly_full(size_bytes, headroom_bytes):
            self.is_short = True
            raise Overloaded(
                f"the disk is full: a segment needs {size_bytes} bytes and {headroom_bytes} must stay free. Free some "
                "space or shorten retention",
                retry_after_ms=1000,
            )
        try:
            self._create(self._next(size_bytes))
        except OSError as error:
            if error.errno in FULL:
                self.is_short = True
                raise Overloaded(f"the disk is full: {error}", retry_after_ms=1000) from error
            raise

    def _is_nearly_full(self, size_bytes: int, headroom_bytes: int) -> bool:
        return self.files.disk.space(self.folder).free_bytes < size_bytes + headroom_bytes

    def _next(self, size_bytes: int) -> Segment:
        path = self.folder / f"{next(self._numbers):06d}{SPARE_SUFFIX}"
        return Segment(self.files, self.folder, 0, size_bytes, source=path, is_reusable=True)

    def _create(self, spare: Segment, *, is_reused: bool = False) -> None:
        spare.create(is_reused=is_reused)
        self._available.append(spare)
        self.is_short = False

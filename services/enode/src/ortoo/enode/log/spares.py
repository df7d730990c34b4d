"""Spare segments: space is reserved before anything is accepted that needs it, so a full disk is met early."""

import contextlib
import errno
from pathlib import Path

from ortoo.common.errors import Overloaded
from ortoo.enode.disk import Disk, File
from ortoo.enode.log.disk_work import DiskWork
from ortoo.enode.log.segment import SPARE_SUFFIX


class Spare:
    """A file of zeros, synced, waiting to become a segment."""

    def __init__(self, path: Path, file: File, size_bytes: int) -> None:
        """Own the open file."""
        self.path = path
        self.file = file
        self.size_bytes = size_bytes


class Spares:
    """Makes spare segments; keeps one of the usual size ahead."""

    def __init__(self, disk: Disk, folder: Path, work: DiskWork, *, segment_bytes: int, headroom_bytes: int) -> None:
        """Make files in `folder`, leaving `headroom_bytes` of the disk free unless a record of the state needs them."""
        self._disk = disk
        self._folder = folder
        self._work = work
        self._segment_bytes = segment_bytes
        self._headroom_bytes = headroom_bytes
        self._ready: Spare | None = None
        self._unused: dict[Path, Spare] = {}
        self._number = 0
        self._making = False

    @property
    def ready(self) -> bool:
        """Whether a spare of the usual size is there."""
        return self._ready is not None

    async def prepare(self) -> bool:
        """Make a spare ahead of need; return whether one is there. A full disk is not an error yet."""
        if self._ready is None and not self._making:
            self._making = True
            try:
                spare = await self._work.run(self._make, self._segment_bytes, self._headroom_bytes)
            except Overloaded:
                return False
            finally:
                self._making = False
            self._ready = spare
        return self._ready is not None

    async def take(self, frame_bytes: int, *, is_state: bool) -> Spare:
        """A spare with room for a frame of `frame_bytes` and the mark at the segment's end.

        State may use the headroom, in a smaller segment. Errors: Overloaded when the disk is full.
        """
        if self._ready is not None and self._ready.size_bytes >= frame_bytes:
            spare, self._ready = self._ready, None
        else:
            spare = await self._make_now(frame_bytes, is_state=is_state)
        del self._unused[spare.path]
        return spare

    def close(self) -> None:
        """Remove the spares that were not needed; what cannot be removed is, by the next start."""
        for spare in self._unused.values():
            spare.file.close()
            with contextlib.suppress(OSError):
                self._disk.remove(spare.path)
        self._unused.clear()

    async def _make_now(self, frame_bytes: int, *, is_state: bool) -> Spare:
        size = max(self._segment_bytes, frame_bytes)
        try:
            return await self._work.run(self._make, size, self._headroom_bytes)
        except Overloaded:
            if not is_state:
                raise
        small = max(frame_bytes, min(self._segment_bytes, self._headroom_bytes // 8 // 64 * 64), 4096)
        return await self._work.run(self._make, small, 0)

    def _make(self, size_bytes: int, headroom_bytes: int) -> Spare:
        if self._disk.free_bytes(self._folder) < size_bytes + headroom_bytes:
            raise Overloaded(
                f"the disk is full: a segment needs {size_bytes} bytes beside {headroom_bytes} of headroom; free some "
                "or shorten retention",
                retry_after_ms=1000,
            )
        self._number += 1
        path = self._folder / f"{self._number:06d}{SPARE_SUFFIX}"
        file = self._disk.open(path, create=True)
        try:
            file.allocate(size_bytes)
            file.sync_data()
        except OSError as error:
            file.close()
            self._disk.remove(path)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Overloaded(f"the disk is full: {error}", retry_after_ms=1000) from error
            raise
        spare = self._unused[path] = Spare(path, file, size_bytes)
        return spare

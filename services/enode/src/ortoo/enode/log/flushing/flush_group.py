"""A flush group: the frames that become durable with one fdatasync."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.disk.disk import ZEROED_BYTES_MAX, Buffer
from ortoo.enode.log.frame import FrameHeader, with_durable_below
from ortoo.enode.log.queue_index import SliceLocation
from ortoo.enode.log.segment import Segment


@dataclass(slots=True)
class FlushEntry:
    """One frame of a group, with the data for its commit."""

    header: FrameHeader
    batch: SealedBatch | None = None
    changes: tuple[StateChange, ...] = ()
    queue: Any = None
    """The `QueueLog` of a batch that was accepted here; None for a copy, whose queue is looked up at the commit."""
    slice_at: SliceLocation | None = None
    """The slice of a checkpoint frame."""


@dataclass(slots=True)
class SegmentPart:
    """The contiguous bytes of a group in one segment."""

    segment: Segment
    position: int
    buffers: list[Buffer] = field(default_factory=list)


@dataclass(slots=True)
class PendingChanges:
    """Accepted state changes that are not in a frame yet."""

    encoded: list[bytes] = field(default_factory=list)
    changes: list[StateChange] = field(default_factory=list)
    bytes: int = 0
    """Their total length."""
    waiters: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """The waiters for their commit."""


@dataclass(slots=True, eq=False)
class FlushGroup:
    """Frames that were accepted while the previous group was on its way to the disk."""

    parts: list[SegmentPart] = field(default_factory=list)
    entries: list[FlushEntry] = field(default_factory=list)
    waiters: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """The waiters for its commit."""
    disk_waiters: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """The waiters for its flush to this disk, or for its commit if that comes first."""
    bytes: int = 0
    is_copy: bool = False
    """Whether another replica wrote its frames; they are not modified."""
    has_protocol_frames: bool = False
    """Whether this replica wrote frames of the replication protocol in it."""
    end_position: int = -1
    is_durable: bool = False
    """Whether its frames are on this disk."""
    is_committed: bool = False
    guard: Callable[[], object] = lambda: None
    """Called when it is on the disk; raises when the store's folder no longer is at its path."""

    @classmethod
    def joined(cls, groups: Sequence["FlushGroup"]) -> "FlushGroup":
        """The bytes of consecutive groups as one group, for one write; a single group is returned itself."""
        if len(groups) == 1:
            return groups[0]
        joined = cls()
        for part in (part for group in groups for part in group.parts):
            if not joined.parts or joined.parts[-1].segment is not part.segment:
                joined.parts.append(SegmentPart(part.segment, part.position))
            joined.parts[-1].buffers.extend(part.buffers)
        joined.end_position = max(group.end_position for group in groups)
        return joined

    def take_waiters(self) -> list[asyncio.Future[Any]]:
        """Remove and return all waiters."""
        waiters = [waiter for waiter, _ in (*self.waiters, *self.disk_waiters)]
        self.waiters.clear()
        self.disk_waiters.clear()
        return waiters

    def set_durable_below(self, position: int) -> None:
        """Write the current durable position into the group's first frame."""
        if self.parts and self.parts[0].buffers and not self.is_copy:
            buffers = self.parts[0].buffers
            buffers[0] = with_durable_below(bytes(buffers[0]), position)

    def write(self) -> None:
        """Write and sync, segment by segment. A segment gets its name only when the previous segment is durable.

        May be called again after a failed write, because bytes and places stay the same. Errors: OSError, NoDescriptor,
        and those of `guard`.
        """
        for part in self.parts:
            segment = part.segment
            segment.install()
            file = segment.writer
            length = file.write(part.position - segment.base, part.buffers)
            is_full = segment.end == part.position + length
            if length <= ZEROED_BYTES_MAX and not is_full and not segment.is_reused:
                file.zero_ahead(part.position - segment.base + length)
            try:
                file.sync_data()
            except OSError as error:
                raise SyncFailed(str(error)) from error
            if is_full:
                segment.stop_writing()
        self.guard()


class SyncFailed(Exception):
    """fdatasync failed. Written bytes may be lost although they are still readable, so there is no retry."""

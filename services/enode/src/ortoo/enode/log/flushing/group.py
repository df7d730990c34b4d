"""A flush group: everything that becomes durable with one fdatasync."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.all import Change
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.frame import FrameHeader, with_durable_below
from ortoo.enode.log.queue_index import SliceAt
from ortoo.enode.log.segment import Segment


@dataclass(slots=True)
class Entry:
    """One frame of a group and what is to be done when it is durable."""

    header: FrameHeader
    batch: SealedBatch | None = None
    changes: tuple[Change, ...] = ()
    queue: Any = None
    """The `QueueLog` of a batch that was accepted here; None of a copy, whose queue is looked up when it is folded."""
    slice_at: SliceAt | None = None
    """Of a checkpoint."""


@dataclass(slots=True)
class Part:
    """The bytes of a group that go into one segment, one after another."""

    segment: Segment
    position: int
    buffers: list[Buffer] = field(default_factory=list)


@dataclass(slots=True)
class WaitingChanges:
    """State changes that were accepted and have no frame yet."""

    encoded: list[bytes] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    bytes: int = 0
    """How long they are together."""
    waiters: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """Who waits until they are committed."""


@dataclass(slots=True, eq=False)
class Group:
    """Frames that were accepted while the group before was on its way to the disk."""

    parts: list[Part] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    waiters: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """Who waits until it is committed."""
    early: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """Who waits until it is on this disk."""
    bytes: int = 0
    is_copy: bool = False
    """Whether its frames were written by another member: they stay as they are."""
    end_position: int = -1

    def let_go(self) -> list[asyncio.Future[Any]]:
        """All who wait; nobody does any more."""
        gone = [waiter for waiter, _ in (*self.waiters, *self.early)]
        self.waiters.clear()
        self.early.clear()
        return gone

    def declare_durable_below(self, position: int) -> None:
        """Let the group's first frame say up to where the log is on disk now."""
        if self.parts and self.parts[0].buffers and not self.is_copy:
            buffers = self.parts[0].buffers
            buffers[0] = with_durable_below(bytes(buffers[0]), position)

    def write(self) -> None:
        """Write and sync, segment by segment: a later segment has no name before the earlier one is durable.

        May be called again after a failed write, for the bytes and places are the same. Errors: OSError, NoDescriptor.
        """
        for part in self.parts:
            segment = part.segment
            segment.install()
            file = segment.writer
            length = file.write(part.position - segment.base, part.buffers)
            try:
                file.sync_data()
            except OSError as error:
                raise SyncFailed(str(error)) from error
            if segment.end == part.position + length:
                segment.stop_writing()


class SyncFailed(Exception):
    """fdatasync failed: what was written may be lost although it can still be read, so nothing is tried again."""

"""A replica's disk for the explorer: a slot for each frame, and the possible states after a crash."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ortoo.enode.replication.protocol.identity import Configuration, HardState, Tail
from ortoo.enode.replication.protocol.log_summary import (
    BeginFrame,
    ConfigurationFrame,
    EpochFrame,
    LogBase,
    LogSummary,
    ProtocolFrame,
)

What = str | int | Configuration
"""The content of a frame: "epoch", the number of a message, a configuration, or ("begin", position) as a text."""


class Entry(NamedTuple):
    """A frame. Each has length 1, so that its position is its index."""

    epoch: int
    what: What

    def mark(self, position: int) -> ProtocolFrame | None:
        """The part of it that the protocol has to know."""
        if isinstance(self.what, Configuration):
            return ConfigurationFrame(position + 1, self.what)
        if self.what == "epoch":
            return EpochFrame(position, position + 1, self.epoch)
        if isinstance(self.what, str):
            return BeginFrame(position, position + 1, int(self.what.removeprefix("begin ")))
        return None


def marks_of(entries: tuple[Entry, ...], begin: int) -> tuple[ProtocolFrame, ...]:
    """All marks among frames that begin at `begin`."""
    return tuple(mark for place, entry in enumerate(entries, begin) if (mark := entry.mark(place)) is not None)


@dataclass(frozen=True, slots=True)
class DiskOfFrames:
    """The durable frames, and those written since; a power cut leaves any part of the latter."""

    base: LogBase
    reign: HardState = HardState()
    synced: tuple[Entry | None, ...] = ()
    """By position, from 0; None where there is no frame."""
    written: tuple[tuple[int, Entry], ...] = ()
    """In the order of the writes; not synced."""
    flushed: Tail = Tail(0, 0)
    """The durable mark of this disk."""

    def view(self) -> tuple[Entry | None, ...]:
        """The frames that a reader sees while the machine has power."""
        places = list(self.synced)
        for position, entry in self.written:
            places.extend([None] * (position + 1 - len(places)))
            places[position] = entry
        return tuple(places)

    def write(self, begin: int, entries: tuple[Entry, ...]) -> "DiskOfFrames":
        """Write without a sync."""
        return replace(self, written=(*self.written, *enumerate(entries, begin)))

    def sync(self, end: int) -> "DiskOfFrames":
        """Make all writes durable and move the durable mark to `end`; only a truncation moves it back."""
        view = self.view()
        assert end <= len(view), f"{end} is marked as flushed, and only {len(view)} frames exist"
        last = view[end - 1] if end else None
        flushed = max(self.flushed, Tail(last.epoch if last else 0, end))
        return replace(self, synced=view, written=(), flushed=flushed)

    def cut(self, position: int) -> "DiskOfFrames":
        """Remove everything behind `position`, durably."""
        return replace(self, synced=self.view()[:position], written=(), flushed=Tail(0, 0)).sync(position)

    def restart(self, base: LogBase) -> "DiskOfFrames":
        """Remove everything; the log will begin at `base`."""
        return replace(self, base=base, synced=(None,) * base.position, written=(), flushed=Tail(0, base.position))

    def delete_below(self, base: LogBase) -> "DiskOfFrames":
        """Drop the frames below."""
        nothing = (None,) * base.position
        kept = tuple(one for one in self.written if one[0] >= base.position)
        return replace(self, base=base, synced=nothing + self.synced[base.position :], written=kept)

    def power_cut(self, stays: Callable[[], bool]) -> "DiskOfFrames":
        """Keep the unsynced frames for which `stays` returns True."""
        kept = replace(self, written=tuple(one for one in self.written if stays()))
        return replace(kept, synced=kept.view(), written=())

    def damaged(self, position: int) -> "DiskOfFrames":
        """Make one frame unreadable."""
        places = list(self.synced)
        places[position] = None
        return replace(self, synced=tuple(places))

    def log_end(self, *, believes_stale: bool = False) -> int:
        """The end of the log: the first slot that is empty, or has an older frame than the one before."""
        view, end, epoch = self.view(), self.base.position, 0
        while end < len(view) and (entry := view[end]) is not None:
            if entry.epoch < epoch and not believes_stale:
                break
            epoch, end = entry.epoch, end + 1
        return end

    def outline(self, end: int) -> LogSummary:
        """The log summary for the protocol at a start. Nothing counts as flushed before it is synced again."""
        at = self.base.position
        empty = LogSummary().reset_to(self.base)
        entries = self.read(at, end)
        if entries and not empty.history.starts and entries[0].what != "epoch":
            empty = replace(empty, history=empty.history.with_epoch(entries[0].epoch, at))
        return replace(empty.appended_with(end, marks_of(entries, at)), truncations=0, is_truncating=False)

    def read(self, begin: int, end: int) -> tuple[Entry, ...]:
        """Existing frames. Errors: AssertionError when one is missing."""
        entries = tuple(entry for entry in self.view()[begin:end] if entry is not None)
        assert len(entries) == max(0, end - begin), f"frames are missing between {begin} and {end}"
        return entries

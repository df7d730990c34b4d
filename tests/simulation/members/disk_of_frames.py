"""A member's disk for the explorer: a place for each frame, and what a crash may leave of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ortoo.enode.members.identity import Configuration, Reign, Tail
from ortoo.enode.members.log_outline import Base, BeginFrame, EpochFrame, LogOutline, Mark, MembersFrame

What = str | int | Configuration
"""Of a frame: the word of an EPOCH frame, the number of a message, new members, or ("begin", position) as a text."""


class Entry(NamedTuple):
    """A frame. Each has the length 1, so that its position is its place."""

    epoch: int
    what: What

    def mark(self, position: int) -> Mark | None:
        """What the protocol has to know of it."""
        if isinstance(self.what, Configuration):
            return MembersFrame(position + 1, self.what)
        if self.what == "epoch":
            return EpochFrame(position, position + 1, self.epoch)
        if isinstance(self.what, str):
            return BeginFrame(position, position + 1, int(self.what.removeprefix("begin ")))
        return None


def marks_of(entries: tuple[Entry, ...], begin: int) -> tuple[Mark, ...]:
    """All marks among frames that begin at `begin`."""
    return tuple(mark for place, entry in enumerate(entries, begin) if (mark := entry.mark(place)) is not None)


@dataclass(frozen=True, slots=True)
class DiskOfFrames:
    """What is on disk for good, and what was written since: of that, a power cut leaves any part."""

    base: Base
    reign: Reign = Reign()
    synced: tuple[Entry | None, ...] = ()
    """By position, from 0; None where nothing lies."""
    written: tuple[tuple[int, Entry], ...] = ()
    """In the order of the writes; not synced."""
    flushed: Tail = Tail(0, 0)
    """The mark of how far this disk was once synced."""

    def view(self) -> tuple[Entry | None, ...]:
        """What a reader sees while the machine has power."""
        places = list(self.synced)
        for position, entry in self.written:
            places.extend([None] * (position + 1 - len(places)))
            places[position] = entry
        return tuple(places)

    def write(self, begin: int, entries: tuple[Entry, ...]) -> "DiskOfFrames":
        """Write without a sync."""
        return replace(self, written=(*self.written, *enumerate(entries, begin)))

    def sync(self, end: int) -> "DiskOfFrames":
        """Everything written is there for good, and the mark says so up to `end`; only a cut takes the mark back."""
        view = self.view()
        assert end <= len(view), f"{end} is said to be flushed, and only {len(view)} is there"
        last = view[end - 1] if end else None
        flushed = max(self.flushed, Tail(last.epoch if last else 0, end))
        return replace(self, synced=view, written=(), flushed=flushed)

    def cut(self, position: int) -> "DiskOfFrames":
        """Take everything behind `position` away, for good."""
        return replace(self, synced=self.view()[:position], written=(), flushed=Tail(0, 0)).sync(position)

    def restart(self, base: Base) -> "DiskOfFrames":
        """Nothing is left; the log will begin at `base`."""
        return replace(self, base=base, synced=(None,) * base.position, written=(), flushed=Tail(0, base.position))

    def delete_below(self, base: Base) -> "DiskOfFrames":
        """Forget what lies below."""
        nothing = (None,) * base.position
        kept = tuple(one for one in self.written if one[0] >= base.position)
        return replace(self, base=base, synced=nothing + self.synced[base.position :], written=kept)

    def power_cut(self, stays: Callable[[], bool]) -> "DiskOfFrames":
        """Of what was not synced, what `stays` says is there."""
        kept = replace(self, written=tuple(one for one in self.written if stays()))
        return replace(kept, synced=kept.view(), written=())

    def damaged(self, position: int) -> "DiskOfFrames":
        """One frame cannot be read any more."""
        places = list(self.synced)
        places[position] = None
        return replace(self, synced=tuple(places))

    def log_end(self, *, believes_stale: bool = False) -> int:
        """Where the log ends: at the first place with nothing, or with a frame that is older than the one before."""
        view, end, epoch = self.view(), self.base.position, 0
        while end < len(view) and (entry := view[end]) is not None:
            if entry.epoch < epoch and not believes_stale:
                break
            epoch, end = entry.epoch, end + 1
        return end

    def outline(self, end: int) -> LogOutline:
        """What the protocol has to know of the log at a start. Nothing counts as flushed before it is synced again."""
        at = self.base.position
        empty = LogOutline().restarted(self.base)
        entries = self.read(at, end)
        if entries and not empty.history.starts and entries[0].what != "epoch":
            empty = replace(empty, history=empty.history.begun(entries[0].epoch, at))
        return replace(empty.extended(end, marks_of(entries, at)), cuts=0, is_cutting=False)

    def read(self, begin: int, end: int) -> tuple[Entry, ...]:
        """Frames that are there. Errors: AssertionError when one is not."""
        entries = tuple(entry for entry in self.view()[begin:end] if entry is not None)
        assert len(entries) == max(0, end - begin), f"frames are missing between {begin} and {end}"
        return entries

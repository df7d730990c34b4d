"""What the protocol knows of a member's log: positions, which epoch wrote what, and the few frames that concern it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ortoo.enode.members.identity import Configuration, Tail


class EpochStart(NamedTuple):
    """From `position` on the log was written by the leader of `epoch`, until the next start."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class History:
    """The epochs of one log, in order; both numbers only grow along it (leader epochs: KIP-101 of Kafka)."""

    starts: tuple[EpochStart, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The epoch of the last frame; 0 for an empty log."""
        return self.starts[-1].epoch if self.starts else 0

    def epoch_below(self, position: int) -> int:
        """The epoch of the frame that ends at `position`; 0 when none does."""
        return next((one.epoch for one in reversed(self.starts) if one.position < position), 0)

    def largest(self, epoch: int) -> int:
        """The largest epoch of this log that is not above `epoch`; 0 when there is none."""
        return next((one.epoch for one in reversed(self.starts) if one.epoch <= epoch), 0)

    def end_of(self, epoch: int, appended: int) -> int | None:
        """Where the frames of `epoch` end in a log that ends at `appended`; None when it has none of them."""
        end = appended
        for one in reversed(self.starts):
            if one.epoch == epoch:
                return end
            end = one.position
        return None

    def begun(self, epoch: int, position: int) -> "History":
        """The same with a new epoch at its end, unless the log begins with it."""
        return self if epoch == self.last_epoch else History((*self.starts, EpochStart(epoch, position)))

    def cut(self, position: int) -> "History":
        """What is left of it when the log ends at `position`."""
        return History(tuple(one for one in self.starts if one.position < position))

    def without_below(self, begin: int) -> "History":
        """What is left of it when the log begins at `begin`: the epoch that goes on there begins there."""
        behind = [one for one in self.starts if one.position >= begin]
        if (before := self.epoch_below(begin)) and (not behind or behind[0].position > begin):
            behind.insert(0, EpochStart(before, begin))
        return History(tuple(behind))


class EpochFrame(NamedTuple):
    """A leader's first frame. It makes everything below it part of what that leader commits."""

    begin: int
    end: int
    epoch: int


class MembersFrame(NamedTuple):
    """The members from here on: as the frame says that ends there, or as is known of a log that begins there."""

    end: int
    configuration: Configuration


class BeginFrame(NamedTuple):
    """Everybody may delete what lies below `log_begin` when this frame is committed."""

    begin: int
    end: int
    log_begin: int


Mark = EpochFrame | MembersFrame | BeginFrame
"""A frame that concerns the protocol, with the position where it ends."""


class Base(NamedTuple):
    """What has to be known of a log before its first frame."""

    position: int
    epoch: int
    """Of the first frame; 0 when it is an EPOCH frame, which says so itself."""
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class LogOutline:
    """Positions of one log: `begin` <= `committed` <= `flushed` <= `appended`. In bytes."""

    begin: int = 0
    appended: int = 0
    flushed: int = 0
    """Everything below is on this disk for good."""
    committed: int = 0
    """Everything below is on a majority of disks, as far as this member knows. No leader will ever cut it."""
    history: History = History()
    placed: tuple[MembersFrame, ...] = (MembersFrame(0, Configuration()),)
    """The members that a committed frame gave, or that the log began with, and those of the frames behind."""
    begins: tuple[BeginFrame, ...] = ()
    """Of frames that are not committed yet."""
    cuts: int = 0
    """How often this process has cut the log: what the disk had begun before a cut says nothing after it."""
    is_cutting: bool = False
    """Whether the last cut is not on disk for good yet."""

    @property
    def members(self) -> Configuration:
        """The members in force: those of the last frame, committed or not (raft, section 4.1 of the thesis)."""
        return self.placed[-1].configuration

    @property
    def tail(self) -> Tail:
        """The end of all frames."""
        return Tail(self.history.last_epoch, self.appended)

    @property
    def base(self) -> Base:
        """What a copy that starts at this log's begin has to know."""
        starts = self.history.starts
        return Base(self.begin, starts[0].epoch if starts else 0, self.placed[0].configuration)

    def extended(self, end: int, marks: tuple[Mark, ...]) -> "LogOutline":
        """The log with frames up to `end` behind it, among them `marks`."""
        history, placed, begins = self.history, self.placed, self.begins
        for mark in marks:
            if isinstance(mark, EpochFrame):
                history = history.begun(mark.epoch, mark.begin)
            elif isinstance(mark, MembersFrame):
                placed = (*placed, mark)
            else:
                begins = (*begins, mark)
        return replace(self, appended=end, history=history, placed=placed, begins=begins)

    def cut(self, position: int) -> "LogOutline":
        """The log without what lies behind `position`, which is not below the committed one."""
        return replace(
            self,
            appended=position,
            flushed=min(self.flushed, position),
            history=self.history.cut(position),
            placed=tuple(one for one in self.placed if one.end <= position) or self.placed[:1],
            begins=tuple(one for one in self.begins if one.end <= position),
            cuts=self.cuts + 1,
            is_cutting=True,
        )

    def restarted(self, base: Base) -> "LogOutline":
        """An empty log that will begin as another one does: nothing of this one is left."""
        starts = (EpochStart(base.epoch, base.position),) if base.epoch else ()
        at, placed = base.position, (MembersFrame(base.position, base.configuration),)
        return LogOutline(at, at, at, at, History(starts), placed, cuts=self.cuts + 1, is_cutting=True)

    def committed_to(self, position: int) -> "LogOutline":
        """The log with more of it committed: members and begins that were in doubt no longer are."""
        agreed = sum(one.end <= position for one in self.placed)
        begin = max([self.begin, *(one.log_begin for one in self.begins if one.end <= position)])
        return replace(
            self,
            begin=begin,
            committed=position,
            history=self.history.without_below(begin) if begin > self.begin else self.history,
            placed=self.placed[max(0, agreed - 1) :],
            begins=tuple(one for one in self.begins if one.end > position),
        )

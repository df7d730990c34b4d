"""The log summary of the protocol: positions, epochs, and the frames that concern the protocol."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ortoo.enode.replication.protocol.identity import Configuration, Tail


class EpochStart(NamedTuple):
    """The leader of `epoch` wrote the log from `position` up to the next start."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class History:
    """The epochs of one log, in order; epochs and positions only grow (as Kafka's leader epochs, KIP-101)."""

    starts: tuple[EpochStart, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The epoch of the last frame; 0 for an empty log."""
        return self.starts[-1].epoch if self.starts else 0

    def epoch_below(self, position: int) -> int:
        """The epoch of the frame that ends at `position`; 0 if there is none."""
        return next((one.epoch for one in reversed(self.starts) if one.position < position), 0)

    def largest(self, epoch: int) -> int:
        """The largest epoch of this log that is not above `epoch`; 0 if there is none."""
        return next((one.epoch for one in reversed(self.starts) if one.epoch <= epoch), 0)

    def end_of(self, epoch: int, appended: int) -> int | None:
        """The end of the frames of `epoch` in a log that ends at `appended`; None without such frames."""
        end = appended
        for one in reversed(self.starts):
            if one.epoch == epoch:
                return end
            end = one.position
        return None

    def begun(self, epoch: int, position: int) -> "History":
        """The history with an epoch appended, unless it is the last one already."""
        return self if epoch == self.last_epoch else History((*self.starts, EpochStart(epoch, position)))

    def cut(self, position: int) -> "History":
        """The history of the log truncated at `position`."""
        return History(tuple(one for one in self.starts if one.position < position))

    def without_below(self, begin: int) -> "History":
        """The history of the log that begins at `begin`; the epoch that was current there begins there."""
        behind = [one for one in self.starts if one.position >= begin]
        if (before := self.epoch_below(begin)) and (not behind or behind[0].position > begin):
            behind.insert(0, EpochStart(before, begin))
        return History(tuple(behind))


class EpochFrame(NamedTuple):
    """A leader's first frame. With it the leader also commits everything below it."""

    begin: int
    end: int
    epoch: int


class MembersFrame(NamedTuple):
    """The configuration from `end` on, from the frame that ends there or the base of a log that begins there."""

    end: int
    configuration: Configuration


class BeginFrame(NamedTuple):
    """All replicas may delete the log below `log_begin` once this frame is committed."""

    begin: int
    end: int
    log_begin: int


Mark = EpochFrame | MembersFrame | BeginFrame
"""A frame that concerns the protocol, with its end position."""


class Base(NamedTuple):
    """The state that precedes the first frame of a log."""

    position: int
    epoch: int
    """The epoch of the first frame; 0 if that is an EPOCH frame, which contains it."""
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class LogOutline:
    """Positions of one log: `begin` <= `committed` <= `flushed` <= `appended`. In bytes."""

    begin: int = 0
    appended: int = 0
    flushed: int = 0
    """Everything below is durable on this disk."""
    committed: int = 0
    """Everything below is on a majority of disks, as known to this replica. No leader ever truncates it."""
    history: History = History()
    placed: tuple[MembersFrame, ...] = (MembersFrame(0, Configuration()),)
    """The last committed configuration, or that of the log's base, and all uncommitted ones."""
    begins: tuple[BeginFrame, ...] = ()
    """Frames that are not committed yet."""
    cuts: int = 0
    """The number of truncations in this process: disk events begun before a truncation are void after it."""
    is_cutting: bool = False
    """Whether the last truncation is not durable yet."""

    @property
    def members(self) -> Configuration:
        """The configuration in force: that of the last frame, committed or not (raft's thesis, section 4.1)."""
        return self.placed[-1].configuration

    @property
    def tail(self) -> Tail:
        """The end of all frames."""
        return Tail(self.history.last_epoch, self.appended)

    @property
    def base(self) -> Base:
        """The base for a copy that starts at this log's begin."""
        starts = self.history.starts
        return Base(self.begin, starts[0].epoch if starts else 0, self.placed[0].configuration)

    def extended(self, end: int, marks: tuple[Mark, ...]) -> "LogOutline":
        """The log with frames appended up to `end`, including `marks`."""
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
        """The log truncated at `position`, which must not be below the committed one."""
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
        """An empty log that begins at another log's base; all frames of this one are dropped."""
        starts = (EpochStart(base.epoch, base.position),) if base.epoch else ()
        at, placed = base.position, (MembersFrame(base.position, base.configuration),)
        return LogOutline(at, at, at, at, History(starts), placed, cuts=self.cuts + 1, is_cutting=True)

    def committed_to(self, position: int) -> "LogOutline":
        """The log committed up to `position`: configurations and begins up to there become final."""
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

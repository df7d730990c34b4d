"""The log summary of the protocol: positions, epochs, and the frames that concern the protocol."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ortoo.enode.replication.protocol.identity import Configuration, Tail


class EpochStart(NamedTuple):
    """The leader of `epoch` wrote the log from `position` up to the next start."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class EpochHistory:
    """The epochs of one log, in order; epochs and positions only grow (as Kafka's leader epochs, KIP-101)."""

    starts: tuple[EpochStart, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The epoch of the last frame; 0 for an empty log."""
        return self.starts[-1].epoch if self.starts else 0

    def epoch_before(self, position: int) -> int:
        """The epoch of the frame that ends at `position`; 0 if there is none."""
        return next((one.epoch for one in reversed(self.starts) if one.position < position), 0)

    def largest_epoch_up_to(self, epoch: int) -> int:
        """The largest epoch of this log that is not above `epoch`; 0 if there is none."""
        return next((one.epoch for one in reversed(self.starts) if one.epoch <= epoch), 0)

    def end_of_epoch(self, epoch: int, appended: int) -> int | None:
        """The end of the frames of `epoch` in a log that ends at `appended`; None without such frames."""
        end = appended
        for one in reversed(self.starts):
            if one.epoch == epoch:
                return end
            end = one.position
        return None

    def with_epoch(self, epoch: int, position: int) -> "EpochHistory":
        """The history with an epoch appended, unless it is the last epoch already."""
        return self if epoch == self.last_epoch else EpochHistory((*self.starts, EpochStart(epoch, position)))

    def truncated(self, position: int) -> "EpochHistory":
        """The history of the log truncated at `position`."""
        return EpochHistory(tuple(one for one in self.starts if one.position < position))

    def trimmed_to(self, begin: int) -> "EpochHistory":
        """The history of the log that begins at `begin`. The epoch that is current at `begin` starts there."""
        behind = [one for one in self.starts if one.position >= begin]
        if (before := self.epoch_before(begin)) and (not behind or behind[0].position > begin):
            behind.insert(0, EpochStart(before, begin))
        return EpochHistory(tuple(behind))


class EpochFrame(NamedTuple):
    """A leader's first frame. When it is committed, all frames below it are committed, too."""

    begin: int
    end: int
    epoch: int


class ConfigurationFrame(NamedTuple):
    """The configuration from `end` on: from the frame that ends there, or the base of a log that begins there."""

    end: int
    configuration: Configuration


class BeginFrame(NamedTuple):
    """All replicas may delete the log below `log_begin` once this frame is committed."""

    begin: int
    end: int
    log_begin: int


ProtocolFrame = EpochFrame | ConfigurationFrame | BeginFrame
"""A frame that concerns the protocol, with its end position."""


class LogBase(NamedTuple):
    """The state that precedes the first frame of a log."""

    position: int
    epoch: int
    """The epoch of the first frame; 0 if that is an EPOCH frame, which contains it."""
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class LogSummary:
    """Positions of one log, in bytes: `begin` <= `committed` <= `appended`, and `flushed` <= `appended`.

    On a follower `committed` <= `flushed`. On a leader, `committed` may be greater, because followers may flush first.
    """

    begin: int = 0
    appended: int = 0
    flushed: int = 0
    """Everything below is durable on this disk."""
    committed: int = 0
    """Everything below is on a majority of disks, as known to this replica. No leader ever truncates it."""
    history: EpochHistory = EpochHistory()
    configurations: tuple[ConfigurationFrame, ...] = (ConfigurationFrame(0, Configuration()),)
    """The last committed configuration, or that of the log's base, and all uncommitted ones."""
    log_begins: tuple[BeginFrame, ...] = ()
    """BEGIN frames that are not committed yet."""
    truncations: int = 0
    """The number of truncations in this process: disk events begun before a truncation are void after it."""
    is_truncating: bool = False
    """Whether the last truncation is not durable yet."""

    @property
    def configuration(self) -> Configuration:
        """The configuration in force: that of the last frame, committed or not (raft's thesis, section 4.1)."""
        return self.configurations[-1].configuration

    @property
    def tail(self) -> Tail:
        """The end of all frames."""
        return Tail(self.history.last_epoch, self.appended)

    @property
    def base(self) -> LogBase:
        """The base for a copy that starts at this log's begin."""
        starts = self.history.starts
        return LogBase(self.begin, starts[0].epoch if starts else 0, self.configurations[0].configuration)

    def appended_with(self, end: int, protocol_frames: tuple[ProtocolFrame, ...]) -> "LogSummary":
        """The log with frames appended up to `end`, including `protocol_frames`."""
        history, configurations, log_begins = self.history, self.configurations, self.log_begins
        for mark in protocol_frames:
            if isinstance(mark, EpochFrame):
                history = history.with_epoch(mark.epoch, mark.begin)
            elif isinstance(mark, ConfigurationFrame):
                configurations = (*configurations, mark)
            else:
                log_begins = (*log_begins, mark)
        return replace(self, appended=end, history=history, configurations=configurations, log_begins=log_begins)

    def truncated(self, position: int) -> "LogSummary":
        """The log truncated at `position`, which must not be below the committed position."""
        return replace(
            self,
            appended=position,
            flushed=min(self.flushed, position),
            history=self.history.truncated(position),
            configurations=tuple(one for one in self.configurations if one.end <= position) or self.configurations[:1],
            log_begins=tuple(one for one in self.log_begins if one.end <= position),
            truncations=self.truncations + 1,
            is_truncating=True,
        )

    def reset_to(self, base: LogBase) -> "LogSummary":
        """An empty log that begins at another log's base; all frames of this log are dropped."""
        starts = (EpochStart(base.epoch, base.position),) if base.epoch else ()
        at, configurations = base.position, (ConfigurationFrame(base.position, base.configuration),)
        return LogSummary(
            at, at, at, at, EpochHistory(starts), configurations, truncations=self.truncations + 1, is_truncating=True
        )

    def committed_to(self, position: int) -> "LogSummary":
        """The log committed up to `position`: earlier configurations and new begins of the log become final."""
        agreed = sum(one.end <= position for one in self.configurations)
        begin = max([self.begin, *(one.log_begin for one in self.log_begins if one.end <= position)])
        return replace(
            self,
            begin=begin,
            committed=position,
            history=self.history.trimmed_to(begin) if begin > self.begin else self.history,
            configurations=self.configurations[max(0, agreed - 1) :],
            log_begins=tuple(one for one in self.log_begins if one.end > position),
        )

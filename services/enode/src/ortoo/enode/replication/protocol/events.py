"""Events and actions: the interface between the protocol of a replica and its driver.

The driver owns the disk, the network and the clock. It executes actions in order, and reports events of the disk.
"""

from dataclasses import dataclass
from typing import Any

from ortoo.enode.replication.protocol.identity import Configuration, MemberId, Process, Reign
from ortoo.enode.replication.protocol.log_summary import Base, Mark
from ortoo.enode.replication.protocol.messages import Message

# events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Comes at least at the interval of heartbeats."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A name server proposes a leader. The proposal may be late, duplicated, or contradict another one."""

    epoch: int
    leader: MemberId


@dataclass(frozen=True, slots=True)
class ReignSaved:
    """The hard state of a `SaveReign` is synced."""

    reign: Reign


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader appended to its own log: messages, changes, or the frame of an action."""

    end: int
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything below `position` is durable, in the log as it was after `cuts` truncations."""

    cuts: int
    position: int


@dataclass(frozen=True, slots=True)
class CutDone:
    """A truncation or reset of the log is durable."""

    cuts: int


@dataclass(frozen=True, slots=True)
class Shipped:
    """Frames up to `end` were sent on the stream."""

    follower: Process
    stream: int
    end: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """An operator, or the shutdown of this process, requests that `successor` becomes leader."""

    successor: MemberId


@dataclass(frozen=True, slots=True)
class AddLearner:
    """An operator adds a replica. It becomes a voter automatically once it has the committed log."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class Remove:
    """An operator removes a replica."""

    member: MemberId


Event = Message | Tick | Proposed | ReignSaved | Appended | Flushed | CutDone | Shipped | HandOver | AddLearner | Remove


# actions


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a replica, to whichever process of it is running."""

    to: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Ship:
    """Read whole frames from `begin` on that begin below `limit`, and send them; then `Shipped`."""

    to: Process
    stream: int
    begin: int
    limit: int


@dataclass(frozen=True, slots=True)
class SaveReign:
    """Write and sync the hard state; then `ReignSaved`. A newer one replaces one that is being written."""

    reign: Reign


@dataclass(frozen=True, slots=True)
class Write:
    """Append the leader's frames to the log and flush; then `Flushed`."""

    begin: int
    end: int
    content: Any


@dataclass(frozen=True, slots=True)
class Cut:
    """Truncate the log at `position`; then `CutDone`. It is recorded first, so that a restart repeats it."""

    position: int
    cuts: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Empty the log, to begin at `base`; then `CutDone`. The hard state with `owed` is saved first."""

    base: Base
    cuts: int


@dataclass(frozen=True, slots=True)
class AppendEpoch:
    """Append the first frame of this leader's epoch; then `Appended`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AppendMembers:
    """Append a MEMBERS frame; then `Appended`."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything below `position` is committed: fold it, make it visible, answer the callers."""

    position: int


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Segments wholly below `begin` may be deleted."""

    begin: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Everything that earlier leaders committed is committed here: serve requests from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """The leader stepped down: answer nothing more in this epoch. Waiting requests have an ambiguous outcome."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Suggest:
    """Request that the name servers propose `leader` in an epoch above `above`."""

    leader: MemberId
    above: int


@dataclass(frozen=True, slots=True)
class LeaderSilent:
    """Report to the name servers that no leader is heard."""


@dataclass(frozen=True, slots=True)
class Contradicted:
    """The leader's log lacks committed frames. This replica truncates nothing and does not follow."""

    leader: Process
    end: int
    """Where the leader's log and this one diverge."""
    committed: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An operator's request is refused, with the reason."""

    reason: str


Action = (
    Send
    | Ship
    | SaveReign
    | Write
    | Cut
    | Restart
    | AppendEpoch
    | AppendMembers
    | Committed
    | DeleteBelow
    | Lead
    | Deposed
    | Suggest
    | LeaderSilent
    | Contradicted
    | Refused
)

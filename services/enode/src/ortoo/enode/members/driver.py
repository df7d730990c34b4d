"""What a member's driver tells it beside the messages of others, and what it does for it.

The driver owns the disk, the network and the clock. It does actions in their order; events tell what the disk did.
"""

from dataclasses import dataclass
from typing import Any

from ortoo.enode.members.identity import Configuration, MemberId, Process, Reign
from ortoo.enode.members.log_outline import Base, Mark
from ortoo.enode.members.messages import Message

# events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. It comes at least as often as heartbeats are due."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A name server proposes who leads. It may be late, doubled, or contradict another one."""

    epoch: int
    leader: MemberId


@dataclass(frozen=True, slots=True)
class ReignSaved:
    """The file that `SaveReign` asked for is synced."""

    reign: Reign


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's own log has grown: messages, changes, or the frame that an action asked for."""

    end: int
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Flushed:
    """The disk has everything below `position`, of the log as it was after so many cuts."""

    cuts: int
    position: int


@dataclass(frozen=True, slots=True)
class CutDone:
    """A cut or a restart of the log is on disk for good."""

    cuts: int


@dataclass(frozen=True, slots=True)
class Shipped:
    """Frames up to `end` were sent on that stream."""

    follower: Process
    stream: int
    end: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """An operator, or the end of this process, wants `successor` to lead."""

    successor: MemberId


@dataclass(frozen=True, slots=True)
class AddLearner:
    """An operator adds a member. It becomes a voter by itself when it has what is committed."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class Remove:
    """An operator removes a member."""

    member: MemberId


Event = Message | Tick | Proposed | ReignSaved | Appended | Flushed | CutDone | Shipped | HandOver | AddLearner | Remove


# actions


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a member, whichever process of it is running."""

    to: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Ship:
    """Read whole frames from `begin` on, the last one beginning below `limit`, and send them; then `Shipped`."""

    to: Process
    stream: int
    begin: int
    limit: int


@dataclass(frozen=True, slots=True)
class SaveReign:
    """Write and sync the file; then `ReignSaved`. A newer one replaces one that is on its way."""

    reign: Reign


@dataclass(frozen=True, slots=True)
class Write:
    """Append a leader's frames to the log and flush; then `Flushed`."""

    begin: int
    end: int
    content: Any


@dataclass(frozen=True, slots=True)
class Cut:
    """Take everything behind `position` from the log, for good: recorded first, redone at a start; then `CutDone`."""

    position: int
    cuts: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Empty the log; it will begin at `base`. The reign that says what is owed is saved first; then `CutDone`."""

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
    """Everything below `position` is committed: fold it, show it, answer for it."""

    position: int


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Segments that lie wholly below `begin` may go."""

    begin: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Everything that former leaders committed is committed here: decide, read and answer from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """Nothing may be answered in this epoch any more: the outcome of what waits is unknown."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Suggest:
    """Ask the name servers to propose `leader` under an epoch above `above`."""

    leader: MemberId
    above: int


@dataclass(frozen=True, slots=True)
class LeaderSilent:
    """Tell the name servers that no leader is heard."""


@dataclass(frozen=True, slots=True)
class Contradicted:
    """The leader's log lacks what is committed: nothing of it is cut here, and this replica does not follow."""

    leader: Process
    end: int
    """Where the leader's log and this one part."""
    committed: int


@dataclass(frozen=True, slots=True)
class Refused:
    """What an operator asked for is not done, and why."""

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

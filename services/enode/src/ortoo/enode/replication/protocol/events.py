"""Events and actions: the interface between the protocol of a replica and its driver.

The driver owns the disk, the network and the clock. It executes actions in order, and reports events of the disk.
"""

from dataclasses import dataclass
from typing import Any

from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId
from ortoo.enode.replication.protocol.log_summary import LogBase, ProtocolFrame
from ortoo.enode.replication.protocol.messages import Message

# events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Comes at least at the interval of heartbeats."""


@dataclass(frozen=True, slots=True)
class LeaderProposed:
    """A name server proposes a leader. The proposal may be late, duplicated, or contradict another one."""

    epoch: int
    leader: ReplicaId


@dataclass(frozen=True, slots=True)
class HardStateSaved:
    """The hard state of a `SaveHardState` is synced."""

    hard_state: HardState


@dataclass(frozen=True, slots=True)
class LogAppended:
    """The leader appended to its own log: messages, changes, or the frame of an action."""

    end: int
    protocol_frames: tuple[ProtocolFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything below `position` is durable. `truncations` counts the truncations of the log before this flush."""

    truncations: int
    position: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """A truncation or reset of the log is durable."""

    truncations: int


@dataclass(frozen=True, slots=True)
class FramesSent:
    """Frames up to `end` were sent on the stream."""

    follower: Incarnation
    stream: int
    end: int


@dataclass(frozen=True, slots=True)
class StorageChanged:
    """The disk can store new frames again, or has no room for them any more."""

    can_store: bool


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """An operator, or the shutdown of this process, requests that `successor` becomes leader."""

    successor: ReplicaId


@dataclass(frozen=True, slots=True)
class AddLearner:
    """An operator adds a replica. The replica becomes a voter automatically once it has the committed log."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class RemoveReplica:
    """An operator removes a replica."""

    replica: ReplicaId


Event = (
    Message
    | Tick
    | LeaderProposed
    | HardStateSaved
    | LogAppended
    | Flushed
    | Truncated
    | FramesSent
    | StorageChanged
    | TransferLeadership
    | AddLearner
    | RemoveReplica
)


# actions


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the process of a replica that is running now."""

    to: ReplicaId
    message: Message


@dataclass(frozen=True, slots=True)
class SendFrames:
    """Read whole frames from `begin` on that begin below `limit`, and send them; then report `FramesSent`."""

    to: Incarnation
    stream: int
    begin: int
    limit: int


@dataclass(frozen=True, slots=True)
class SaveHardState:
    """Write and sync the hard state; then report `HardStateSaved`. A newer hard state replaces an unfinished write."""

    hard_state: HardState


@dataclass(frozen=True, slots=True)
class WriteFrames:
    """Append the leader's frames to the log and flush; then report `Flushed`."""

    begin: int
    end: int
    content: Any


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log at `position`; then report `Truncated`.

    The driver first records the truncation on disk, so that a restart repeats it.
    """

    position: int
    truncations: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Empty the log and let it begin at `base`; then report `Truncated`.

    The hard state with its `unsynced_tail` is saved first.
    """

    base: LogBase
    truncations: int


@dataclass(frozen=True, slots=True)
class AppendEpoch:
    """Append the first frame of this leader's epoch; then report `LogAppended`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AppendConfiguration:
    """Append a CONFIGURATION frame; then report `LogAppended`."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class ApplyCommitted:
    """Fold the frames below `position`, which are committed, make them visible, and answer the callers."""

    position: int


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Allow the deletion of segments that lie wholly below `begin`."""

    begin: int


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Serve requests from now on, because everything that earlier leaders committed is committed here."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SteppedDown:
    """Stop answering requests of this epoch, because the leader stepped down. Open requests have an unknown outcome."""

    epoch: int


@dataclass(frozen=True, slots=True)
class RequestElection:
    """Request that the name servers propose `leader` in an epoch above `above`."""

    leader: ReplicaId
    above: int


@dataclass(frozen=True, slots=True)
class ReportLeaderSilent:
    """Report to the name servers that no leader is heard."""


@dataclass(frozen=True, slots=True)
class Contradicted:
    """Report that the leader's log lacks committed frames. This replica truncates nothing and does not follow."""

    leader: Incarnation
    end: int
    """Where the leader's log and this one diverge."""
    committed: int


@dataclass(frozen=True, slots=True)
class RejectRequest:
    """Refuse an operator's request with the reason."""

    reason: str


Action = (
    Send
    | SendFrames
    | SaveHardState
    | WriteFrames
    | Truncate
    | Reset
    | AppendEpoch
    | AppendConfiguration
    | ApplyCommitted
    | DeleteBelow
    | BecomeLeader
    | SteppedDown
    | RequestElection
    | ReportLeaderSilent
    | Contradicted
    | RejectRequest
)

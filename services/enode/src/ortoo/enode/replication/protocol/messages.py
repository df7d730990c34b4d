"""Messages between replicas. Any of them may be lost, duplicated, delayed or reordered.

Messages of another replica set never arrive here: the transport compares the set's id first.
"""

from dataclasses import dataclass
from typing import Any

from ortoo.enode.replication.protocol.identity import Incarnation, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import LogBase, ProtocolFrame


@dataclass(frozen=True, slots=True)
class RequestVote:
    """Requests a vote, which is a promise to reject lower epochs from now on."""

    epoch: int
    candidate: Incarnation


@dataclass(frozen=True, slots=True)
class Vote:
    """A vote, with the end of the voter's log."""

    epoch: int
    voter: Incarnation
    tail: Tail
    is_electable: bool
    """Whether the voter could become leader."""


@dataclass(frozen=True, slots=True)
class StaleEpoch:
    """Rejects a message of a stale epoch."""

    epoch: int
    """The highest epoch that the sender voted in."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Announces the leader and the committed position."""

    epoch: int
    leader: Incarnation
    round: int
    """Counts the leader's heartbeats."""
    committed: int
    appended: int
    """The end of the leader's log."""
    incarnation: int
    stream: int
    """The follower's process and stream that the leader knows as matched; 0 without one."""


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Confirms a heartbeat: the follower votes for no other replica during a lease that began when it came."""

    epoch: int
    follower: Incarnation
    round: int
    stream: int
    """The matched stream that `flushed` is about; 0 without one."""
    flushed: int
    cannot_store: bool = False
    """Whether the follower's disk has no room for new frames."""
    cannot_lead: bool = False
    """Whether the follower must not be chosen as leader, for example because of its role."""


@dataclass(frozen=True, slots=True)
class LogMatchRequest:
    """Requests, on a new stream, the leader's largest epoch that is not above `last_epoch`."""

    epoch: int
    follower: Incarnation
    stream: int
    """Counts the streams of this process; a later one replaces an earlier one."""
    last_epoch: int


@dataclass(frozen=True, slots=True)
class LogMatchResponse:
    """Returns the requested epoch, and the end of its frames in the leader's log."""

    epoch: int
    follower: Incarnation
    stream: int
    largest: int
    end: int
    base: LogBase
    """The base of the leader's log, for a follower that has to start at its begin."""


@dataclass(frozen=True, slots=True)
class LogMatched:
    """Confirms that both logs are equal up to `position`: later frames may be sent."""

    epoch: int
    follower: Incarnation
    stream: int
    position: int
    flushed: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole frames of the leader's log."""

    epoch: int
    follower: Incarnation
    stream: int
    begin: int
    end: int
    protocol_frames: tuple[ProtocolFrame, ...]
    """The frames that concern the protocol."""
    committed: int
    content: Any
    """The bytes in pieces, passed on by the protocol. At the receiver, whole frames that were checked."""


@dataclass(frozen=True, slots=True)
class AppendAck:
    """Confirms that everything below `flushed` is durable on the follower's disk."""

    epoch: int
    follower: Incarnation
    stream: int
    flushed: int


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """Ends the lease: this leader has stopped answering reads, so other replicas may be voted for."""

    epoch: int
    leader: Incarnation


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Tells the successor that the leader stepped down. It has the effect of a name server's proposal."""

    epoch: int
    leader: ReplicaId


Message = (
    RequestVote
    | Vote
    | StaleEpoch
    | Heartbeat
    | HeartbeatResponse
    | LogMatchRequest
    | LogMatchResponse
    | LogMatched
    | Frames
    | AppendAck
    | LeaseReleased
    | TimeoutNow
)

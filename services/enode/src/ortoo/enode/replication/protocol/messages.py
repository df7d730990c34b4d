"""Messages between replicas. Any of them may be lost, duplicated, delayed or reordered.

Messages of another replica set never arrive here: the transport compares the set's id first.
"""

from dataclasses import dataclass
from typing import Any

from ortoo.enode.replication.protocol.identity import MemberId, Process, Tail
from ortoo.enode.replication.protocol.log_summary import Base, Mark


@dataclass(frozen=True, slots=True)
class PromiseAsk:
    """Requests a vote: to reject lower epochs from now on."""

    epoch: int
    candidate: Process


@dataclass(frozen=True, slots=True)
class Promise:
    """A vote, with the end of the voter's log."""

    epoch: int
    voter: Process
    tail: Tail
    is_electable: bool
    """Whether the voter could become leader."""


@dataclass(frozen=True, slots=True)
class Newer:
    """Rejects a message of a stale epoch."""

    epoch: int
    """The highest epoch that the sender voted in."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Announces the leader and the committed position."""

    epoch: int
    leader: Process
    round: int
    """Counts the leader's heartbeats."""
    committed: int
    appended: int
    """The end of the leader's log."""
    incarnation: int
    stream: int
    """The follower's process and stream that the leader knows as matched; 0 without one."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Confirms a heartbeat: the follower votes for no other replica during a lease from its arrival."""

    epoch: int
    follower: Process
    round: int
    stream: int
    """The matched stream that `flushed` is about; 0 without one."""
    flushed: int


@dataclass(frozen=True, slots=True)
class MatchAsk:
    """Requests, on a new stream, the leader's largest epoch that is not above `last_epoch`."""

    epoch: int
    follower: Process
    stream: int
    """Counts the streams of this process; a later one replaces an earlier one."""
    last_epoch: int


@dataclass(frozen=True, slots=True)
class MatchAnswer:
    """Returns that epoch, and the end of its frames in the leader's log."""

    epoch: int
    follower: Process
    stream: int
    largest: int
    end: int
    base: Base
    """The base of the leader's log, for a follower that has to start at its begin."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Confirms that both logs are equal up to `position`: later frames may be sent."""

    epoch: int
    follower: Process
    stream: int
    position: int
    flushed: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole frames of the leader's log."""

    epoch: int
    follower: Process
    stream: int
    begin: int
    end: int
    marks: tuple[Mark, ...]
    """The frames that concern the protocol."""
    committed: int
    content: Any
    """The bytes in pieces, passed on by the protocol. At the receiver, whole frames that were checked."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Confirms that everything below `flushed` is durable on the follower's disk."""

    epoch: int
    follower: Process
    stream: int
    flushed: int


@dataclass(frozen=True, slots=True)
class Released:
    """Ends the lease: this leader has stopped answering reads, so other replicas may be voted for."""

    epoch: int
    leader: Process


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Tells the successor that the leader stepped down: like a proposal of a name server, but sent directly."""

    epoch: int
    leader: MemberId


Message = (
    PromiseAsk
    | Promise
    | Newer
    | Heartbeat
    | HeartbeatAnswer
    | MatchAsk
    | MatchAnswer
    | Matched
    | Frames
    | Ack
    | Released
    | HandedOver
)

"""What members say to each other. Any of it may be lost, come twice, late or in another order.

Processes of another set of members are not heard: whoever carries these messages compares the set's id first.
"""

from dataclasses import dataclass
from typing import Any

from ortoo.enode.members.identity import MemberId, Process, Tail
from ortoo.enode.members.log_outline import Base, Mark


@dataclass(frozen=True, slots=True)
class PromiseAsk:
    """Asks to obey nobody below this epoch."""

    epoch: int
    candidate: Process


@dataclass(frozen=True, slots=True)
class Promise:
    """Promises it, and says where the own log ends."""

    epoch: int
    voter: Process
    tail: Tail
    is_electable: bool
    """Whether the voter could lead itself."""


@dataclass(frozen=True, slots=True)
class Newer:
    """Says that the other speaks for an epoch that is over."""

    epoch: int
    """The highest that the sender has promised."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Says who leads, and how much is committed."""

    epoch: int
    leader: Process
    round: int
    """Counts the leader's heartbeats."""
    committed: int
    appended: int
    """Where the leader's log ends."""
    incarnation: int
    stream: int
    """The follower's process and stream that the leader knows as matched; 0 without one."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Says that it was heard: for a lease from then on, nothing is promised to others."""

    epoch: int
    follower: Process
    round: int
    stream: int
    """The matched stream that `flushed` is about; 0 without one."""
    flushed: int


@dataclass(frozen=True, slots=True)
class MatchAsk:
    """Asks on a new stream for the leader's largest epoch that is not above `last_epoch`."""

    epoch: int
    follower: Process
    stream: int
    """Counts the streams of this process; a later one replaces an earlier one."""
    last_epoch: int


@dataclass(frozen=True, slots=True)
class MatchAnswer:
    """Names that epoch, and where its frames end in the leader's log."""

    epoch: int
    follower: Process
    stream: int
    largest: int
    end: int
    base: Base
    """Of the leader's log, for a follower that has to start at its begin."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Says that both logs are one up to `position`: what lies behind may be sent."""

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
    """Those among the frames that concern the protocol."""
    committed: int
    content: Any
    """The bytes, in pieces; the protocol passes them on. Where they came they are whole frames that were checked."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Says that everything below `flushed` is on the follower's disk for good."""

    epoch: int
    follower: Process
    stream: int
    flushed: int


@dataclass(frozen=True, slots=True)
class Released:
    """Says that this leader answers no reads any more: promises to others are free."""

    epoch: int
    leader: Process


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Says to its successor that a leader has let go: a proposal like those of name servers, and without their way."""

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

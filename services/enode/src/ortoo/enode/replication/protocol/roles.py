"""The roles of a replica with their volatile state."""

from dataclasses import dataclass
from typing import NamedTuple

from ortoo.enode.replication.protocol.identity import Incarnation, ReplicaId
from ortoo.enode.replication.protocol.messages import Vote


@dataclass(frozen=True, slots=True)
class Idle:
    """The role of a replica that knows no leader."""


@dataclass(frozen=True, slots=True)
class Voter:
    """The role of a replica that voted for a candidate in its epoch. The vote is effective when it is on disk."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The role of a replica that collects the votes of its epoch."""

    votes: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class Follower:
    """The role of a replica that follows a leader; a new stream replaces a failed stream."""

    leader: Incarnation
    stream: int
    requested_epoch: int = -1
    """The epoch in the last match request to the leader; -1 before the vote for the leader's epoch is on disk."""
    is_matched: bool = False
    is_truncating: bool = False
    """Whether frames that differ from the leader's log are being truncated; then the logs match."""
    is_behind: bool = True
    """Whether the leader's log is longer, or the leader does not know that the stream is matched."""
    last_progress_s: float = 0.0
    """When a message last arrived on the stream or a match request was sent."""


@dataclass(frozen=True, slots=True)
class FollowerStream:
    """The leader's state of its stream to one follower."""

    follower: Incarnation
    number: int
    is_matched: bool = False
    sent: int = 0
    flushed: int = 0
    is_sending: bool = False
    """Whether a `SendFrames` is in progress; the next one waits for it."""


@dataclass(frozen=True, slots=True)
class LastResponse:
    """The last heartbeat round that a replica answered, and when the round was sent."""

    replica: ReplicaId
    round: int
    sent_s: float
    cannot_store: bool = False
    """Whether its disk had no room for new frames."""
    cannot_lead: bool = False


class DiskStall(NamedTuple):
    """A time in which the leader's disk confirmed no write, although a majority without it has later frames on disk."""

    flushed: int
    """The last position that the leader's disk confirmed."""
    since_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """The role of the replica that leads its epoch."""

    since_s: float
    previous_rounds: int = 0
    """Heartbeats up to this number are of an earlier term of this process; answers to them do not count."""
    epoch_end: int = 0
    """The end of its EPOCH frame; 0 before that is appended."""
    streams: tuple[FollowerStream, ...] = ()
    responses: tuple[LastResponse, ...] = ()
    rounds: tuple[tuple[int, float], ...] = ()
    """The last heartbeats: (number, time when sent)."""
    next_heartbeat_s: float = 0.0
    is_serving: bool = False
    """Whether its EPOCH frame is committed and it serves requests."""
    successor: ReplicaId | None = None
    """The replica to which it transfers leadership; meanwhile it appends nothing."""
    transfer_deadline_s: float = 0.0
    """If the successor has not caught up by then, this leader continues."""
    stall: DiskStall | None = None
    """Set while a majority without this leader has frames on disk that the leader's disk has not confirmed."""

    def stream_to(self, replica: ReplicaId) -> FollowerStream | None:
        """The stream to a replica; None without one."""
        return next((one for one in self.streams if one.follower.replica == replica), None)

    def last_response_of(self, replica: ReplicaId) -> LastResponse:
        """The last answer of a replica; before its first answer, round 0 at the start of this leader's term."""
        return next((one for one in self.responses if one.replica == replica), LastResponse(replica, 0, self.since_s))


Role = Idle | Voter | Candidate | Follower | Leader

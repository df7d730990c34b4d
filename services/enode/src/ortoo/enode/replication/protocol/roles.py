"""The roles of a replica with their volatile state."""

from dataclasses import dataclass

from ortoo.enode.replication.protocol.identity import MemberId, Process
from ortoo.enode.replication.protocol.messages import Promise


@dataclass(frozen=True, slots=True)
class Idle:
    """Knows no leader."""


@dataclass(frozen=True, slots=True)
class Voter:
    """Voted for a candidate in its epoch; effective when the vote is on disk."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Collects votes of its epoch."""

    promises: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows a leader; a new stream replaces a failed one."""

    leader: Process
    stream: int
    asked_epoch: int = -1
    """The epoch in the last match request to the leader; -1 before the vote for the leader's epoch is on disk."""
    is_matched: bool = False
    is_cutting: bool = False
    """Whether frames that differ from the leader's log are being truncated; then the logs match."""
    lacks: bool = True
    """Whether the leader's log is longer, or the leader does not know that the stream is matched."""
    progress_s: float = 0.0
    """When a message last arrived on the stream or a match request was sent."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A leader's state of one follower."""

    follower: Process
    number: int
    is_matched: bool = False
    sent: int = 0
    flushed: int = 0
    is_shipping: bool = False
    """Whether a `Ship` is in progress; the next one waits for it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last heartbeat round that a replica answered, and when the answer came."""

    member: MemberId
    round: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """Leads its epoch."""

    since_s: float
    rounds_before: int = 0
    """Heartbeats up to this number are of an earlier term of this process; answers to them do not count."""
    epoch_end: int = 0
    """The end of its EPOCH frame; 0 before that is appended."""
    streams: tuple[Stream, ...] = ()
    heard: tuple[Heard, ...] = ()
    rounds: tuple[tuple[int, float], ...] = ()
    """The last heartbeats: (number, time when sent)."""
    next_heartbeat_s: float = 0.0
    is_serving: bool = False
    """Whether its EPOCH frame is committed and it serves requests."""
    successor: MemberId | None = None
    """The replica to which it transfers leadership; meanwhile it appends nothing."""
    hand_over_until_s: float = 0.0
    """If the successor has not caught up by then, this leader continues."""

    def stream_of(self, member: MemberId) -> Stream | None:
        """The stream to a replica; None without one."""
        return next((one for one in self.streams if one.follower.member == member), None)

    def heard_of(self, member: MemberId) -> Heard:
        """The last answer of a replica; without one, round 0 at the start of this leader's term."""
        return next((one for one in self.heard if one.member == member), Heard(member, 0, self.since_s))


Role = Idle | Voter | Candidate | Follower | Leader

"""What a member is at the moment, and what it has to remember as such. All of it is gone with the process."""

from dataclasses import dataclass

from ortoo.enode.members.identity import MemberId, Process
from ortoo.enode.members.messages import Promise


@dataclass(frozen=True, slots=True)
class Idle:
    """Knows no leader."""


@dataclass(frozen=True, slots=True)
class Voter:
    """Has promised its epoch to a candidate, or will have when the promise is on disk."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Gathers promises of its epoch."""

    promises: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows a leader, on one stream after another."""

    leader: Process
    stream: int
    asked_epoch: int = -1
    """The epoch that the leader was asked about last; -1 before the promise of the leader's epoch is on disk."""
    is_matched: bool = False
    is_cutting: bool = False
    """What does not match the leader's log is being taken away; then it matches."""
    lacks: bool = True
    """Whether the leader has more than this member, or does not know that the stream is matched."""
    progress_s: float = 0.0
    """When something came on the stream, or was asked for."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What a leader knows of one of those who follow."""

    follower: Process
    number: int
    is_matched: bool = False
    sent: int = 0
    flushed: int = 0
    is_shipping: bool = False
    """A `Ship` is on its way, and nothing else is sent before it is done."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last of a leader's rounds that a member has answered, and when the answer came."""

    member: MemberId
    round: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """Leads its epoch."""

    since_s: float
    rounds_before: int = 0
    """Heartbeats up to this number are of a time when it led before, and answers to them count no more."""
    epoch_end: int = 0
    """The end of its EPOCH frame; 0 before it is appended."""
    streams: tuple[Stream, ...] = ()
    heard: tuple[Heard, ...] = ()
    rounds: tuple[tuple[int, float], ...] = ()
    """The last heartbeats: number, and when it was sent."""
    next_heartbeat_s: float = 0.0
    is_serving: bool = False
    """Its EPOCH frame was committed, and everything waits no longer."""
    successor: MemberId | None = None
    """To whom it hands over. It appends nothing more."""
    hand_over_until_s: float = 0.0
    """If the successor has not everything by then, this leader goes on."""

    def stream_of(self, member: MemberId) -> Stream | None:
        """The stream to a member; None without one."""
        return next((one for one in self.streams if one.follower.member == member), None)

    def heard_of(self, member: MemberId) -> Heard:
        """What was heard of a member; of one that never answered, round 0 at the time when this leader began."""
        return next((one for one in self.heard if one.member == member), Heard(member, 0, self.since_s))


Role = Idle | Voter | Candidate | Follower | Leader

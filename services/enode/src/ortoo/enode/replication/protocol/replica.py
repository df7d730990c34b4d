"""One replica: its state, and the operations that event handlers perform on it."""

from dataclasses import dataclass, field

from ortoo.enode.replication.protocol.events import Action, Deposed, SaveReign
from ortoo.enode.replication.protocol.identity import Configuration, MemberId, Process, Reign
from ortoo.enode.replication.protocol.log_summary import LogOutline
from ortoo.enode.replication.protocol.roles import Follower, Idle, Leader, Role
from ortoo.enode.replication.protocol.rules import Rules


@dataclass(frozen=True, slots=True)
class Limits:
    """Times and sizes. The clock advances while the machine sleeps."""

    heartbeat_s: float = 0.2
    silence_s: float = 1.0
    """After this time without a leader a follower reports it; without answers of a majority a leader steps down."""
    lease_s: float = 0.8
    """How long a follower votes for no other replica after a heartbeat; below `silence_s`, so it delays no election."""
    drift_s: float = 0.05
    """The drift of two clocks during a lease."""
    retry_s: float = 0.5
    """The time without progress after which a follower begins a new stream."""
    window_bytes: int = 16 << 20
    """The bytes that may be sent to a follower ahead of its acknowledgements."""


@dataclass(slots=True, unsafe_hash=True)
class Member:
    """The state of one start of a replica. `reign` and the log outlive the process, the rest does not.

    It is a value: `protocol.step` changes a copy that is not shared yet.
    """

    me: Process
    log: LogOutline
    reign: Reign
    is_saved: bool = True
    """Whether `reign` is on disk. Until then it is not sent."""
    role: Role = Idle()
    lease_until_s: float = 0.0
    """No vote for another replica before this."""
    streams_begun: int = 0
    rounds_begun: int = 0
    """Counts the heartbeats of this process, so that their numbers are unique."""
    heard_s: float = 0.0
    """When a leader was last heard, or its absence was last reported."""
    known_committed: int = 0
    """The committed position of an earlier start of this disk; every later leader has the log up to there."""
    rules: Rules = field(default=Rules(), compare=False, repr=False)
    limits: Limits = field(default=Limits(), compare=False, repr=False)
    wanted: tuple[Action, ...] = ()
    """The actions of the current event, in order; empty between events."""

    @classmethod
    def started(
        cls,
        me: Process,
        log: LogOutline,
        reign: Reign,
        now_s: float,
        *,
        known_committed: int = 0,
        rules: Rules | None = None,
        limits: Limits | None = None,
    ) -> "Member":
        """A process that has just opened its log. It may have granted a lease before, which it does not remember.

        In `log` nothing beyond the begin is flushed or committed, because the driver still has to sync the log that it
        found. A sole voter grants no leases.
        """
        limits = limits or Limits()
        is_alone = log.members.voters == (me.member,)
        lease_until_s = now_s if is_alone else now_s + limits.lease_s
        return cls(
            me,
            log,
            reign,
            lease_until_s=lease_until_s,
            heard_s=now_s,
            known_committed=known_committed,
            rules=rules or Rules(),
            limits=limits,
        )

    @property
    def leading(self) -> Leader:
        """The role of a leader."""
        assert isinstance(self.role, Leader)
        return self.role

    @property
    def following(self) -> Follower:
        """The role of a follower."""
        assert isinstance(self.role, Follower)
        return self.role

    @property
    def members(self) -> tuple[MemberId, ...]:
        """All other replicas that get the log."""
        return tuple(one for one in self.rules.in_force(self.log).everybody if one != self.me.member)

    def answering(self, members: Configuration, now_s: float) -> tuple[MemberId, ...]:
        """The other voters of `members` that answered this leader within `silence_s`."""
        role = self.leading
        others = [one for one in members.voters if one != self.me.member]
        return tuple(one for one in others if now_s - role.heard_of(one).at_s < self.limits.silence_s)

    @property
    def is_heard(self) -> bool:
        """Whether a majority, including this leader, has answered one of its rounds."""
        members = self.rules.in_force(self.log)
        others = [one for one in members.voters if one != self.me.member]
        return 1 + sum(self.leading.heard_of(one).round > 0 for one in others) >= members.majority

    def may_append(self) -> bool:
        """Whether messages and changes may be appended; otherwise sends wait or are refused."""
        return isinstance(self.role, Leader) and self.role.is_serving and self.role.successor is None

    def may_read(self, now_s: float) -> bool:
        """Whether reads and decisions may be answered from the committed log without asking other replicas."""
        role = self.role
        if not isinstance(role, Leader) or not self.rules.may_serve(role, self.log.committed):
            return False
        members = self.rules.in_force(self.log)
        if members.voters == (self.me.member,):
            return True
        current = role.rounds[-1][0] if role.rounds else 0
        rounds = [current if one == self.me.member else role.heard_of(one).round for one in members.voters]
        lease_s = self.limits.lease_s - self.limits.drift_s
        return now_s < self.rules.read_lease_until(role, rounds, members.majority, lease_s)

    # while an event is handled

    def want(self, *actions: Action) -> None:
        """Add actions to those of the current event."""
        self.wanted += actions

    def turn(self, role: Role) -> None:
        """Change the role; a leader steps down."""
        if isinstance(self.role, Leader) and not isinstance(role, Leader):
            self.want(Deposed(self.reign.epoch))
        self.role = role

    def promise(self, reign: Reign, role: Role) -> None:
        """Change the role and the hard state, which is not sent before it is saved."""
        self.turn(role)
        self.reign, self.is_saved = reign, False
        self.want(SaveReign(reign))

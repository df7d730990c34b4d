"""One member: its state, and what handlers of events do to it."""

from dataclasses import dataclass, field

from ortoo.enode.members.driver import Action, Deposed, SaveReign
from ortoo.enode.members.identity import Configuration, MemberId, Process, Reign
from ortoo.enode.members.log_outline import LogOutline
from ortoo.enode.members.roles import Follower, Idle, Leader, Role
from ortoo.enode.members.rules import Rules


@dataclass(frozen=True, slots=True)
class Limits:
    """Times and sizes. Times are of a clock that goes on while the machine sleeps."""

    heartbeat_s: float = 0.2
    silence_s: float = 1.0
    """A follower that hears nothing for so long says so; a leader that no majority answers for so long gives up."""
    lease_s: float = 0.8
    """How long a follower promises nothing to others after a heartbeat; below `silence_s`, so it delays nothing."""
    drift_s: float = 0.05
    """By how much two clocks may go apart during a lease."""
    retry_s: float = 0.5
    """After so long without progress a follower begins a new stream."""
    window_bytes: int = 16 << 20
    """So much is sent to a follower before it has acknowledged some of it."""


@dataclass(slots=True, unsafe_hash=True)
class Member:
    """Everything that one start of a member knows. `reign` and the log outlive the process, the rest does not.

    It is a value: whoever takes an event (`protocol.step`) changes a copy that nobody else has yet.
    """

    me: Process
    log: LogOutline
    reign: Reign
    is_saved: bool = True
    """Whether `reign` is on disk. Until then nobody hears of it."""
    role: Role = Idle()
    lease_until_s: float = 0.0
    """Nothing is promised to others before."""
    streams_begun: int = 0
    rounds_begun: int = 0
    """Counts the heartbeats of this process, so that none has the number of another."""
    heard_s: float = 0.0
    """When a leader was heard last, or that none is was reported."""
    known_committed: int = 0
    """How far the log was committed in an earlier start of this disk; a later leader has all of that."""
    rules: Rules = field(default=Rules(), compare=False, repr=False)
    limits: Limits = field(default=Limits(), compare=False, repr=False)
    wanted: tuple[Action, ...] = ()
    """What is to be done for the event that is being taken, in this order; nothing between events."""

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
        """A process that has just opened its log: it may have given a lease that it does not remember.

        `log` has nothing flushed and nothing committed beyond its begin: the disk is asked to sync what was found.
        A sole voter has nobody to give a lease to.
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
        """The role of one that leads."""
        assert isinstance(self.role, Leader)
        return self.role

    @property
    def following(self) -> Follower:
        """The role of one that follows."""
        assert isinstance(self.role, Follower)
        return self.role

    @property
    def members(self) -> tuple[MemberId, ...]:
        """All others who get the log."""
        return tuple(one for one in self.rules.in_force(self.log).everybody if one != self.me.member)

    def answering(self, members: Configuration, now_s: float) -> tuple[MemberId, ...]:
        """The other voters among `members` that have answered this leader of late."""
        role = self.leading
        others = [one for one in members.voters if one != self.me.member]
        return tuple(one for one in others if now_s - role.heard_of(one).at_s < self.limits.silence_s)

    @property
    def is_heard(self) -> bool:
        """Whether a majority, this leader with it, has answered one of its rounds."""
        members = self.rules.in_force(self.log)
        others = [one for one in members.voters if one != self.me.member]
        return 1 + sum(self.leading.heard_of(one).round > 0 for one in others) >= members.majority

    def may_append(self) -> bool:
        """Whether messages and changes may be appended to the log: sends wait or are refused otherwise."""
        return isinstance(self.role, Leader) and self.role.is_serving and self.role.successor is None

    def may_read(self, now_s: float) -> bool:
        """Whether reads and decisions may be answered from what is committed here, without asking others."""
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

    # while it takes an event

    def want(self, *actions: Action) -> None:
        """Have this done, behind what is wanted already."""
        self.wanted += actions

    def turn(self, role: Role) -> None:
        """Take another role; who led says that it does no more."""
        if isinstance(self.role, Leader) and not isinstance(role, Leader):
            self.want(Deposed(self.reign.epoch))
        self.role = role

    def promise(self, reign: Reign, role: Role) -> None:
        """Take another role with a new reign, which nobody hears of before it is saved."""
        self.turn(role)
        self.reign, self.is_saved = reign, False
        self.want(SaveReign(reign))

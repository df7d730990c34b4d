"""One replica: its state, and the operations that event handlers perform on it."""

from dataclasses import dataclass, field

from ortoo.enode.replication.protocol.events import Action, SaveHardState, SteppedDown
from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId
from ortoo.enode.replication.protocol.log_summary import LogSummary
from ortoo.enode.replication.protocol.roles import Follower, Idle, Leader, Role
from ortoo.enode.replication.protocol.rules import Rules


@dataclass(frozen=True, slots=True)
class ReplicationLimits:
    """The time and size limits of replication. The clock advances while the machine sleeps."""

    heartbeat_interval_s: float = 0.2
    leader_timeout_s: float = 1.0
    """After this time without a leader a follower reports it; without answers of a majority a leader steps down."""
    lease_s: float = 0.8
    """How long a follower votes for no other replica after a heartbeat.

    Below `leader_timeout_s`, so it delays no election.
    """
    disk_timeout_s: float = 1.0
    """After this time without an answer of its own disk, or without room on it, a leader resigns.

    It continues to lead unless a majority without it can store frames.
    """
    clock_drift_s: float = 0.05
    """The drift of two clocks during a lease."""
    retry_s: float = 0.5
    """The time without progress after which a follower begins a new stream."""
    window_bytes: int = 16 << 20
    """The bytes that may be sent to a follower ahead of its acknowledgements."""


@dataclass(slots=True, unsafe_hash=True)
class Replica:
    """The state of one start of a replica. Only `hard_state` and the log outlive the process.

    A replica is a value: `protocol.step` changes only a copy.
    """

    identity: Incarnation
    log: LogSummary
    hard_state: HardState
    is_hard_state_saved: bool = True
    """Whether `hard_state` is on disk. Until then it is not sent."""
    role: Role = Idle()
    lease_until_s: float = 0.0
    """Until this monotonic time, this replica votes for no other replica."""
    stream_count: int = 0
    round_count: int = 0
    """Counts the heartbeats of this process, so that their numbers are unique."""
    leader_heard_s: float = 0.0
    """When a leader was last heard, or its absence was last reported."""
    follows_only: bool = False
    """Whether it leads only when an operator elects it; no replica chooses it as successor."""
    can_store: bool = True
    """Whether the disk has room for new frames."""
    cannot_store_since_s: float = 0.0
    released_epoch: int = 0
    """The last epoch whose leases this process released. It never leads that epoch again."""
    known_committed: int = 0
    """The committed position of an earlier start of this disk; every later leader has the log up to there."""
    rules: Rules = field(default=Rules(), compare=False, repr=False)
    limits: ReplicationLimits = field(default=ReplicationLimits(), compare=False, repr=False)
    pending_actions: tuple[Action, ...] = ()
    """The actions of the current event, in order; empty between events."""

    @classmethod
    def initial(
        cls,
        identity: Incarnation,
        log: LogSummary,
        hard_state: HardState,
        now_s: float,
        *,
        known_committed: int = 0,
        follows_only: bool = False,
        rules: Rules | None = None,
        limits: ReplicationLimits | None = None,
    ) -> "Replica":
        """The state of a process that has just opened its log. A lease that an earlier process granted may still run.

        In `log` nothing beyond the begin is flushed or committed, because the driver has not synced the log yet. A sole
        voter grants no leases.
        """
        limits = limits or ReplicationLimits()
        is_alone = log.configuration.voters == (identity.replica,)
        lease_until_s = now_s if is_alone else now_s + limits.lease_s
        return cls(
            identity,
            log,
            hard_state,
            lease_until_s=lease_until_s,
            leader_heard_s=now_s,
            known_committed=known_committed,
            follows_only=follows_only,
            rules=rules or Rules(),
            limits=limits,
        )

    @property
    def leader_role(self) -> Leader:
        """The role, which must be that of a leader."""
        assert isinstance(self.role, Leader)
        return self.role

    @property
    def follower_role(self) -> Follower:
        """The role, which must be that of a follower."""
        assert isinstance(self.role, Follower)
        return self.role

    @property
    def peers(self) -> tuple[ReplicaId, ...]:
        """All other replicas that get the log."""
        return tuple(one for one in self.rules.configuration_of(self.log).replicas if one != self.identity.replica)

    def responding_voters(self, configuration: Configuration, now_s: float) -> tuple[ReplicaId, ...]:
        """The other voters of `configuration` that answered a heartbeat of the last `leader_timeout_s`."""
        role = self.leader_role
        others = [one for one in configuration.voters if one != self.identity.replica]
        return tuple(one for one in others if now_s - role.last_response_of(one).sent_s < self.limits.leader_timeout_s)

    def successors(self, now_s: float) -> tuple[ReplicaId, ...]:
        """The responding voters that this leader may choose as successor. Those with room on their disk come first."""
        role = self.leader_role
        responding = self.responding_voters(self.rules.configuration_of(self.log), now_s)
        able = [one for one in responding if not role.last_response_of(one).cannot_lead]

        def weight(one: ReplicaId) -> tuple[bool, int]:
            return role.last_response_of(one).cannot_store, -self.rules.acknowledged_position(role.stream_to(one))

        return tuple(sorted(able, key=weight))

    @property
    def has_heartbeat_quorum(self) -> bool:
        """Whether a majority, including this leader, has answered a heartbeat round of this leader."""
        configuration = self.rules.configuration_of(self.log)
        others = [one for one in configuration.voters if one != self.identity.replica]
        return 1 + sum(self.leader_role.last_response_of(one).round > 0 for one in others) >= configuration.majority

    def may_append(self) -> bool:
        """Whether messages and changes may be appended; otherwise sends wait or are refused."""
        return isinstance(self.role, Leader) and self.role.is_serving and self.role.successor is None

    def may_read(self, now_s: float) -> bool:
        """Whether reads and decisions may be answered from the committed log without asking other replicas."""
        role = self.role
        if not isinstance(role, Leader) or not self.rules.may_serve(role, self.log.committed):
            return False
        configuration = self.rules.configuration_of(self.log)
        if configuration.voters == (self.identity.replica,):
            return True
        current = role.rounds[-1][0] if role.rounds else 0
        rounds = [
            current if one == self.identity.replica else role.last_response_of(one).round
            for one in configuration.voters
        ]
        lease_s = self.limits.lease_s - self.limits.clock_drift_s
        return now_s < self.rules.read_lease_until(role, rounds, configuration.majority, lease_s)

    # while an event is handled

    def add_actions(self, *actions: Action) -> None:
        """Add actions to those of the current event."""
        self.pending_actions += actions

    def change_role(self, role: Role) -> None:
        """Change the role; a leader steps down."""
        if isinstance(self.role, Leader) and not isinstance(role, Leader):
            self.add_actions(SteppedDown(self.hard_state.epoch))
        self.role = role

    def change_hard_state(self, hard_state: HardState, role: Role) -> None:
        """Change the role and the hard state. The hard state is saved before any message with it is sent."""
        self.change_role(role)
        self.hard_state, self.is_hard_state_saved = hard_state, False
        self.add_actions(SaveHardState(hard_state))

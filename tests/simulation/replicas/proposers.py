"""Name servers among the replicas of a walk: they propose leaders by the reports, over one database.

They may be away, lose their memory, or continue with an old database. Nothing committed may depend on them. When all
faults have ended, a leader is there soon.
"""

from dataclasses import dataclass, field

from ortoo.enode.replication.protocol.events import (
    Action,
    BecomeLeader,
    Event,
    LeaderProposed,
    ReportLeaderSilent,
    RequestElection,
)
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.messages import Heartbeat
from ortoo.enode.replication.protocol.roles import Follower, Leader
from ortoo.enode.replication.protocol.rules import Rules
from ortoo.namesrv.decisions import replicas as reported
from ortoo.namesrv.decisions.proposals import ProposalState, next_proposal
from tests.simulation.replicas.walk import Scenario, Walk
from tests.simulation.replicas.world import Violation, World
from tests.unit.namesrv.proposal_row import ProposalRow

REPORT_S = 0.5
LEASE_S = 3.0
LEADER_WITHIN_S = 3.0
TICK_S = 0.1


@dataclass
class NameServer:
    """A name server that replicas report to."""

    members: reported.ReplicaSets = field(default_factory=lambda: reported.ReplicaSets(LEASE_S))
    standing: ProposalState = ProposalState()
    is_away: bool = False


class WorldWithNameServers(World):
    """Replicas keep their next report: whether they miss a leader, and the leader that they request."""

    silent: dict[int, bool]
    asked: dict[int, tuple[ReplicaId, int]]

    def feed(self, number: int, event: Event) -> None:
        """As the driver does: a replica that receives a leader's heartbeat misses none."""
        if isinstance(event, Heartbeat) and event.epoch >= self.up(number).hard_state.epoch:
            self.silent[number] = False
        super().feed(number, event)

    def act(self, number: int, action: Action, *, leads: bool) -> None:
        """As the driver does: a request for an election is repeated until it is answered."""
        if isinstance(action, ReportLeaderSilent | BecomeLeader):
            self.silent[number] = isinstance(action, ReportLeaderSilent)
        elif isinstance(action, RequestElection):
            self.asked[number] = (action.leader, action.above)
        super().act(number, action, leads=leads)


class ProposedWalk(Walk):
    """A walk in which only name servers propose."""

    def __init__(self, scenario: Scenario, seed: int, rules: Rules) -> None:
        super().__init__(scenario, seed, rules, WorldWithNameServers)
        world = self.world
        assert isinstance(world, WorldWithNameServers)
        world.silent, world.asked = {}, {}
        self.members: WorldWithNameServers = world
        self.servers = [NameServer(), NameServer()]
        self.database = ProposalRow()
        self.backups: list[reported.Proposal | None] = [None]
        self.is_database_away = False
        self._reported_s = dict.fromkeys(world.machines, 0.0)

    # Events beside those of replicas; Walk's arbitrary proposals are replaced by those of name servers.

    def _propose(self) -> None:
        """Replicas report, to one name server or to all."""
        self.report_all()

    def _usurp(self) -> None:
        """Something happens to the name servers or to their database."""
        chance = self.random
        match chance.choice(("away", "back", "restart", "backup", "restore", "database", "database back")):
            case "away":
                chance.choice(self.servers).is_away = True
            case "back":
                chance.choice(self.servers).is_away = False
            case "restart":
                self.servers[chance.randrange(2)] = NameServer()
            case "backup":
                self.backups = [*self.backups[-3:], self.database.row]
            case "restore":
                self.database.row = chance.choice(self.backups)
            case "database":
                self.is_database_away = True
            case _:
                self.is_database_away = False

    def report_all(self) -> None:
        """Every running replica reports to every name server that it reaches, in any order."""
        numbers = self.world.running()
        self.random.shuffle(numbers)
        for number in numbers:
            for server in self.random.sample(self.servers, 2):
                if not server.is_away and number in self.world.running():
                    self._report(number, server)

    def _report(self, number: int, server: NameServer) -> None:
        world, member = self.members, self.world.up(number)
        role, log, rules = member.role, member.log, member.rules
        suggested, above = world.asked.get(number, (None, 0))
        if isinstance(role, Follower) and member.hard_state.epoch == above:
            suggested, above = None, 0
            world.asked.pop(number, None)
        tail = rules.claimed_tail(log, member.hard_state)
        known = server.members.update(
            reported.ReplicaReport(
                enode="e",
                set_id="set",
                replica=_id(member.identity.replica),
                incarnation=world.machines[number].starts,
                address=f"h{number}:1",
                replica_address=f"h{number}:2",
                epoch=member.hard_state.epoch,
                is_leading=isinstance(role, Leader) and role.is_serving,
                tail=reported.LogTail(tail.epoch, tail.position),
                is_electable=rules.is_electable(log, member.hard_state),
                is_leader_silent=not isinstance(role, Leader) and world.silent.get(number, False),
                suggested_leader=_id(suggested) if suggested else None,
                suggested_above_epoch=above,
                voters=tuple(map(_id, log.configuration.voters)),
                learners=tuple(map(_id, log.configuration.learners)),
                committed=log.committed,
            ),
            world.now_s,
        )
        server.members.expire(world.now_s)
        if not self.is_database_away:
            server.standing = server.standing.with_stored(self.database.row, world.now_s)
            if proposal := next_proposal(known, server.standing):
                self.database.put(server.standing.stored_epoch, proposal)
                server.standing = server.standing.with_stored(self.database.row, world.now_s)
        proposal = server.standing.proposal
        if max(member.hard_state.epoch, proposal.epoch if proposal else 0) > above:
            world.asked.pop(number, None)
        if proposal is not None:
            world.epochs_proposed = max(world.epochs_proposed, proposal.epoch)
            world.feed(number, LeaderProposed(proposal.epoch, ReplicaId(*proposal.leader)))

    def settle(self) -> None:
        """The first leader is proposed like all later ones."""
        self.await_leader(LEADER_WITHIN_S)

    def heal(self) -> None:
        """All faults end."""
        self.world.cut_off = frozenset()
        self.is_database_away = False
        for server in self.servers:
            server.is_away = False
        for number, machine in self.world.machines.items():
            if machine.member is None:
                self.world.start(number)

    def await_leader(self, limit_s: float, *, apart_from: int = 0) -> float:
        """Let time pass without faults until there is a leader; returns the time. Errors: Violation.

        One that is `apart_from` the others may believe that it leads.
        """
        world, begun_s = self.world, self.world.now_s
        due_s = world.now_s
        while not set(self._leaders()) - {apart_from}:
            if world.now_s - begun_s > limit_s:
                raise Violation(f"no replica leads {limit_s} s after all faults have ended")
            if world.now_s >= due_s:
                self.report_all()
                due_s = world.now_s + REPORT_S
            self._deliver_all()
            world.tick(TICK_S)
        return world.now_s - begun_s

    def _deliver_all(self) -> None:
        for _ in range(400):
            busy = [number for number, machine in self.world.machines.items() if machine.work]
            if busy:
                self.world.disk_works(busy[0])
            elif self.world.network:
                self.world.deliver(0)
            else:
                return


def _id(member: ReplicaId) -> reported.ReplicaId:
    return reported.ReplicaId(member.number, member.disk)

"""Random walks through all events of a world, from a seed; and whether it recovers at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random  # noqa: TID251

from ortoo.enode.replication.protocol.events import (
    AddLearner,
    LeaderProposed,
    RemoveReplica,
    StorageChanged,
    TransferLeadership,
)
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.messages import Message
from ortoo.enode.replication.protocol.replica import ReplicationLimits
from ortoo.enode.replication.protocol.roles import Leader
from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.world import Machine, Violation, World

WEIGHTS: Mapping[str, float] = {
    "deliver": 60,
    "late": 1,
    "disk": 25,
    "tick": 4,
    "send": 8,
    "propose": 3,
    "usurp": 3,
    "start": 4,
    "kill": 0.4,
    "power": 0.8,
    "isolate": 1.5,
    "heal": 1.5,
    "wipe": 0.0,
    "damage": 0.0,
    "hand_over": 0.3,
    "change": 0.0,
    "begin": 0.0,
}
LATE_MAX = 12
HANGING_ROUNDS_MAX = 20
"""The rounds of messages after which a leader with a hanging disk must have a successor."""


@dataclass(frozen=True)
class Scenario:
    """The initial state, and the frequencies of events."""

    voters: int = 3
    voters_min: int = 3
    """No removal goes below this number."""
    joiners: int = 0
    steps: int = 200
    wipes_max: int = 1
    """Disks that may be lost: at most a minority, because more permit no guarantee."""
    window_bytes: int = 2
    lease_s: float = 0.8
    """0 without leases: then there are no lease reads, and no vote has to wait."""
    silence_s: float = 1.0
    """The time for which an unanswered leader continues; nothing committed may depend on it."""
    weights: Mapping[str, float] = field(default_factory=dict)
    lost: float = 0.05
    """The share of lost messages."""
    doubled: float = 0.05
    comes_late: tuple[type, ...] = (object,)
    """Messages that may be delivered again much later."""
    said_twice: float = 0.3
    """The share of repeated proposals."""
    torn: tuple[float, ...] = (0.0, 0.5, 1.0)
    """The share of unsynced frames that a power cut may leave."""
    ordered: float = 0.5
    """The share of messages delivered before all later ones."""
    last_fault: str = ""
    """The fault of the leader's disk at the end, "hangs" or "full"; then another replica must become leader."""


TURNS = {"usurp": 6, "isolate": 3, "heal": 3, "send": 10}
"""Leaders change often."""
SCENARIOS: Mapping[str, Scenario] = {
    "three members": Scenario(),
    "leaders come and go": Scenario(steps=400, weights=TURNS, window_bytes=1),
    "no leases": Scenario(weights={**TURNS, "power": 2, "start": 12}, lease_s=0.0),
    "power cuts": Scenario(weights={"power": 4, "kill": 2, "start": 20, "disk": 14, "usurp": 6, "send": 16}),
    "a disk is lost": Scenario(joiners=1, weights={"wipe": 0.5, "damage": 0.5, "change": 1}),
    "the log's begin moves": Scenario(weights={"begin": 3, "wipe": 0.3, "power": 2}),
    "members come and go": Scenario(voters=2, voters_min=2, joiners=2, wipes_max=0, weights={**TURNS, "change": 4}),
    "down to one member": Scenario(voters_min=1, wipes_max=0, weights={**TURNS, "change": 4}),
    "leaders that do not give up": Scenario(steps=300, weights={"tick": 6, "usurp": 5, "isolate": 3}, silence_s=60.0),
    "the leader's disk hangs": Scenario(steps=100, last_fault="hangs"),
    "the leader's disk is full": Scenario(steps=100, last_fault="full"),
    "five members": Scenario(voters=5, steps=300, wipes_max=2, weights={**TURNS, "wipe": 0.3, "damage": 0.3}),
}
"""With all rules on, none of them may break an invariant."""


class Walk:
    """One run from one seed."""

    def __init__(self, scenario: Scenario, seed: int, rules: Rules, world: type[World] = World) -> None:
        self.random = Random(f"members {seed}")
        self.scenario = scenario
        self.late: list[tuple[int, Message]] = []
        self.proposals: list[tuple[int, ReplicaId]] = []
        limits = ReplicationLimits(
            lease_s=scenario.lease_s, leader_timeout_s=scenario.silence_s, window_bytes=scenario.window_bytes
        )
        self.world = world.started(scenario.voters, scenario.joiners, rules, limits)
        weights = {**WEIGHTS, **scenario.weights}
        self._kinds = [name for name, weight in weights.items() if weight]
        self._weights = [weights[name] for name in self._kinds]
        self._events: dict[str, Callable[[], object]] = {name: getattr(self, f"_{name}") for name in self._kinds}

    def settle(self) -> None:
        """Let replica 1 lead by a proposal, so that the walk begins where something can be lost."""
        self._say(1, self.world.machines[1].id)
        for _ in range(3):
            self._calm_round()

    def run(self) -> None:
        """Let events happen. Errors: Violation, AssertionError of the protocol."""
        self.settle()
        for name in self.random.choices(self._kinds, self._weights, k=self.scenario.steps):
            self._events[name]()
        if self.scenario.last_fault:
            self.recover()
            self._outlive_failing_disk()

    # All events.

    def _deliver(self) -> None:
        world, chance = self.world, self.random
        if world.network:
            index = 0 if chance.random() < self.scenario.ordered else chance.randrange(len(world.network))
            if chance.random() < self.scenario.lost:
                world.lose(index)
            else:
                self._arrives(index)

    def _arrives(self, index: int) -> None:
        if self.random.random() < self.scenario.doubled and isinstance(
            self.world.network[index][1], self.scenario.comes_late
        ):
            self.late = [*self.late[-LATE_MAX:], self.world.network[index]]
        self.world.deliver(index)

    def _late(self) -> None:
        """A message is delivered again, long after the first time."""
        if self.late:
            to, message = self.random.choice(self.late)
            self.world.arrive(to, message)

    def _disk(self) -> None:
        busy = [number for number, machine in self.world.machines.items() if machine.work and machine.member]
        if busy:
            self.world.disk_works(self.random.choice(busy))

    def _tick(self) -> None:
        self.world.tick(self.random.choice((0.1, 0.25, 0.25, 0.5)))

    def _leaders(self) -> list[int]:
        return [one for one in self.world.running() if self.world.up(one).may_append()]

    def _send(self) -> None:
        if leaders := self._leaders():
            self.world.send(self.random.choice(leaders))

    def _propose(self) -> None:
        """A proposal of a name server with current data, of one without, or repeated."""
        world, chance = self.world, self.random
        to = chance.choice(list(world.machines))
        epoch = chance.choice(
            (world.epochs_proposed, world.epochs_proposed + 1, chance.randint(1, world.epochs_proposed))
        )
        leader = world.machines[to].id
        if self.proposals and chance.random() < self.scenario.said_twice:
            epoch, leader = chance.choice(self.proposals)
        elif world.suggestions and chance.random() < 0.3:
            above, leader = chance.choice(world.suggestions)
            epoch = max(above, world.epochs_proposed) + 1
        self._say(epoch, leader)

    def _usurp(self) -> None:
        """Leases expire without a timer firing; then another replica is proposed."""
        world = self.world
        world.now_s += self.random.choice((0.25, 0.5, 1.0))
        if running := world.running():
            self._say(world.epochs_proposed + 1, world.machines[self.random.choice(running)].id)

    def _say(self, epoch: int, leader: ReplicaId) -> None:
        self.proposals = [*self.proposals[-3:], (epoch, leader)]
        self.world.epochs_proposed = max(epoch, self.world.epochs_proposed)
        if self.world.machines[leader.number].member is not None:
            self.world.feed(leader.number, LeaderProposed(epoch, leader))

    def _start(self) -> None:
        down = [number for number, machine in self.world.machines.items() if machine.member is None]
        if down:
            self.world.start(self.random.choice(down))

    def _kill(self) -> None:
        if running := self.world.running():
            self.world.kill(self.random.choice(running))

    def _power(self) -> None:
        share = self.random.choice(self.scenario.torn)
        self.world.power_cut(self.random.choice(list(self.world.machines)), lambda: self.random.random() < share)

    def _isolate(self) -> None:
        """Most often a leader, because the protocol is about events during its isolation."""
        numbers = list(self.world.machines)
        leaders = [one for one in self.world.running() if isinstance(self.world.up(one).role, Leader)]
        if leaders and self.random.random() < 0.5:
            self.world.cut_off = frozenset((self.random.choice(leaders),))
            return
        self.world.cut_off = frozenset(self.random.sample(numbers, self.random.randint(1, len(numbers) - 1)))

    def _heal(self) -> None:
        self.world.cut_off = frozenset()

    def _victim(self) -> Machine | None:
        """The replica whose disk is lost: most often one with all committed frames while another lacks some."""
        machines = list(self.world.machines.values())
        if self.world.wipes >= self.scenario.wipes_max:
            return None
        complete = [one for one in machines if one.disk.log_end() >= len(self.world.truth)]
        if len(complete) == len(machines) and self.random.random() < 0.8:
            return None
        return self.random.choice(complete or machines)

    def _wipe(self) -> None:
        if victim := self._victim():
            self.world.wipe(victim.number)

    def _damage(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        begin, end = victim.disk.base.position, victim.disk.flushed.position
        if begin < end <= len(victim.disk.synced):
            self.world.damage(victim.number, self.random.randrange(begin, end))

    def _hand_over(self) -> None:
        if leaders := self._leaders():
            to = self.random.choice(list(self.world.machines.values()))
            self.world.feed(self.random.choice(leaders), TransferLeadership(to.id))

    def _change(self) -> None:
        """A replica is added, or one is removed."""
        world = self.world
        leaders = [one for one in world.running() if isinstance(world.up(one).role, Leader)]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        there = world.up(leader).log.configuration.replicas
        absent = [machine.id for machine in world.machines.values() if machine.id not in there]
        if absent and self.random.random() < 0.6:
            world.feed(leader, AddLearner(self.random.choice(absent)))
            return
        gone: list[ReplicaId] = [one for one in there if world.machines[one.number].id != one]
        if not gone and len(world.up(leader).log.configuration.voters) > self.scenario.voters_min:
            gone = list(there)
        if gone:
            world.feed(leader, RemoveReplica(self.random.choice(gone)))

    def _begin(self) -> None:
        if leaders := self._leaders():
            leader = self.random.choice(leaders)
            log = self.world.up(leader).log
            if log.begin < log.committed:
                self.world.move_begin(leader, self.random.randint(log.begin + 1, log.committed))

    # The end.

    def recover(self) -> None:
        """All replicas run and communicate, and a name server proposes: a message must be committed again."""
        world = self.world
        world.cut_off = frozenset()
        for number, machine in world.machines.items():
            if machine.member is None:
                world.start(number)
        sent: set[object] = set()
        for _ in range(60):
            self._calm_round()
            for leader in self._leaders():
                world.send(leader)
                sent.add(world.messages_sent)
            if not sent.isdisjoint(entry.what for entry in world.truth[-9:]):
                return
        raise Violation("a majority talks, and nothing is committed")

    def _outlive_failing_disk(self) -> None:
        """The leader's disk hangs or is full, while all messages arrive: another replica becomes leader."""
        failing, fault = self._leaders()[0], self.scenario.last_fault
        if fault == "full":
            self.world.feed(failing, StorageChanged(can_store=False))
        for _ in range(HANGING_ROUNDS_MAX):
            leaders = self._leaders()
            if leaders and failing not in leaders:
                return
            for leader in leaders:
                self.world.send(leader)
            self._calm_round(failing if fault == "hangs" else 0)
        raise Violation(f"the disk of replica {failing} fails ({fault}), and no other replica leads")

    def _calm_round(self, hanging: int = 0) -> None:
        """Everything works, except the disk of the replica `hanging`."""
        world = self.world
        for _ in range(200):
            busy = [number for number, machine in world.machines.items() if machine.work and number != hanging]
            if busy:
                world.disk_works(busy[0])
            elif world.network:
                self._arrives(0)
            else:
                break
        if world.suggestions and not self._leaders():
            _, leader = self.random.choice(world.suggestions)
            world.epochs_proposed = max(world.epochs_proposed, *(above for above, _ in world.suggestions)) + 1
            world.suggestions = ()
            if world.machines[leader.number].id == leader:
                world.feed(leader.number, LeaderProposed(world.epochs_proposed, leader))
        world.tick()


def first_violation(
    scenario: Scenario, rules: Rules, world: type[World] = World, *, seeds: range, recovers: bool = False
) -> tuple[int, str] | None:
    """The first seed whose walk fails, and the failure; None when there is none."""
    for seed in seeds:
        walk = Walk(scenario, seed, rules, world)
        try:
            walk.run()
            if recovers and scenario.silence_s <= 1.0:
                walk.recover()
        except (Violation, AssertionError) as found:
            return seed, f"{type(found).__name__}: {found}"
    return None

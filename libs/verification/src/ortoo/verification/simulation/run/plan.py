"""The faults of a run and their times. All are drawn before the run begins, so that any of them can be left out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.cluster.cluster import ClusterShape

MEAN_GAP_S = (1.5, 8.0)
"""The mean time between two faults in seconds; each run has its own density."""
FIRST_AT_S = 2.0
ARMED = 0.6
"""The share of faults that wait for packets."""
PACKETS_MAX = 6
MOMENT_S = 0.005
"""The largest delay after that event: during a flush, or before its answer."""
FLUSHING_S = 0.001_5
"""The largest delay after an event of the disk, while it works."""
AT_WORK = 0.6
"""The share of faults ending an enode that wait for its disk: until it changes a name, or has bytes to write."""
ENDING = frozenset({"kill", "power cut"})

NAMESRV, ENODE, SNODE, CLIENT = "namesrv", "enode", "snode", "client"

FaultKind = tuple[tuple[str, ...], tuple[float, float], int]

KINDS: dict[str, FaultKind] = {
    # name: (roles it may hit, seconds that it lasts, weight)
    "kill": ((NAMESRV, ENODE, SNODE), (0.0, 6.0), 10),
    "power cut": ((ENODE,), (0.5, 6.0), 8),
    "stop": ((NAMESRV, ENODE, SNODE), (0.0, 4.0), 5),
    "pause": ((NAMESRV, ENODE, SNODE, CLIENT), (0.2, 15.0), 5),
    "kill client": ((CLIENT,), (0.0, 5.0), 5),
    "isolate": ((NAMESRV, ENODE, SNODE), (0.5, 12.0), 5),
    "partition": ((ENODE, SNODE), (0.5, 12.0), 5),
    "one way": ((ENODE, SNODE), (0.5, 12.0), 4),
    "slow network": ((ENODE, SNODE), (1.0, 10.0), 3),
    "reset": ((NAMESRV, ENODE, SNODE), (0.0, 0.0), 5),
    "break often": ((NAMESRV, ENODE, SNODE, CLIENT), (0.5, 5.0), 4),
    "slow reader": ((CLIENT,), (1.0, 10.0), 2),
    "move": ((ENODE,), (0.2, 4.0), 3),
    "clock jump": ((NAMESRV, ENODE, SNODE, CLIENT), (1.0, 20.0), 3),
    "drift": ((NAMESRV, ENODE, SNODE), (5.0, 30.0), 2),
    "slow disk": ((ENODE,), (1.0, 8.0), 4),
    "sync fails": ((ENODE,), (0.5, 5.0), 3),
    "writes fail": ((ENODE,), (0.5, 5.0), 3),
    "reads fail": ((ENODE,), (0.5, 5.0), 3),
    "names fail": ((ENODE,), (0.5, 5.0), 2),
    "full disk": ((ENODE,), (1.0, 8.0), 3),
    "no descriptors": ((ENODE,), (0.5, 8.0), 3),
    "bit flip": ((ENODE,), (0.0, 0.0), 1),
    "misdirected write": ((ENODE,), (0.0, 0.0), 1),
    "redis flush": ((SNODE,), (0.0, 0.0), 2),
    "redis silent": ((SNODE,), (0.5, 10.0), 2),
    "redis fail-over": ((SNODE,), (0.0, 0.0), 1),
    "database away": ((NAMESRV,), (0.5, 10.0), 2),
    "database flaky": ((NAMESRV,), (1.0, 15.0), 2),
}

REPLICA_KINDS: dict[str, FaultKind] = {
    # Faults that only a set of replicas survives, beside the kinds above.
    "cut from members": ((ENODE,), (0.5, 12.0), 8),
    "cut from name servers": ((ENODE,), (0.5, 12.0), 4),
    "bit flip": ((ENODE,), (0.0, 0.0), 4),
    "killed in a cut": ((ENODE,), (2.0, 8.0), 4),
    "emptied disk": ((ENODE,), (0.2, 4.0), 4),
    "lost file": ((ENODE,), (3.0, 8.0), 3),
    "rolled back file": ((ENODE,), (3.0, 8.0), 3),
    "late and twice": ((ENODE,), (1.0, 10.0), 4),
    "hanging disk": ((ENODE,), (0.5, 10.0), 4),
    "clocks apart": ((ENODE,), (3.0, 20.0), 3),
    "clock off": ((ENODE,), (2.0, 20.0), 4),
    "slow processor": ((NAMESRV, ENODE, SNODE), (1.0, 15.0), 8),
    "database restored": ((NAMESRV,), (1.0, 15.0), 3),
}
REPLICAS_SPARED = frozenset({"move", "misdirected write", "clock jump"})
"""Faults that replicas do not get: their addresses come from settings, and misplaced frames."""
AT_THE_LEADER = 0.5
"""The share of faults of replicas that hit the current leader."""

DAMAGING = frozenset({"bit flip", "misdirected write"})
"""Faults that may lose acknowledged messages, if the loss is reported."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault."""

    number: int
    at_s: float
    kind: str
    target: str
    other: str
    """The second machine of faults between two."""
    lasts_s: float
    amount: float
    """The severity, from 0 to 1; its meaning depends on the fault."""
    packets: int = 0
    """The number of packets of its target to wait for, so that it hits a conversation and not a pause."""
    at_work: str = ""
    """Wait for its target's disk: until it changes a "name", or has to "write"."""
    moment_s: float = 0.0
    """The delay after the event it waits for."""
    at_leader: bool = False
    """It hits the replica that leads at its time; its target only while there is no leader."""

    def __str__(self) -> str:
        after = f" after {self.packets} packets" if self.packets else ""
        after = f" at a {self.at_work}" if self.at_work else after
        between = f" {self.other}" if self.kind in ("partition", "one way") else ""
        whom = "the leader" if self.at_leader else self.target
        return f"{self.number}: {self.at_s:.2f} s {self.kind} {whom}{between} for {self.lasts_s:.2f} s{after}"


def draw_plan(
    chance: Randomness,
    shape: ClusterShape,
    clients: Sequence[str],
    *,
    seconds: float,
    kinds: Collection[str] | None = None,
) -> list[PlannedFault]:
    """The faults of a run: of these kinds, or of a few drawn kinds, so that runs differ in character."""
    table = KINDS if shape.replicas == 1 else _without(KINDS, REPLICAS_SPARED) | REPLICA_KINDS
    names = [kind for kind in sorted(table) if kinds is None or kind in kinds]
    if kinds is None:
        names = [kind for kind in names if chance.uniform(0, 1) < 0.5] or names
    machines = {
        NAMESRV: [f"namesrv-{number}" for number in range(shape.name_servers)],
        ENODE: enode_machines(shape),
        SNODE: [f"snode-{number}" for number in range(shape.snodes)],
        CLIENT: list(clients),
    }
    tickets = [kind for kind in names for _ in range(table[kind][2])]
    gap_s = chance.uniform(*MEAN_GAP_S)
    faults: list[PlannedFault] = []
    at_s = FIRST_AT_S + chance.uniform(0, gap_s)
    while tickets and at_s < seconds:
        kind = tickets[chance.below(len(tickets))]
        whom, (least_s, most_s), _ = table[kind]
        targets = [machine for role in whom for machine in machines[role]]
        others = [machine for role in (NAMESRV, ENODE, SNODE) for machine in machines[role]]
        target = targets[chance.below(len(targets))] if targets else ""
        other = others[chance.below(len(others))]
        lasts_s, amount = chance.uniform(least_s, most_s), chance.uniform(0.0, 1.0)
        packets = chance.below(PACKETS_MAX) + 1 if chance.uniform(0.0, 1.0) < ARMED else 0
        at_work = ("write", "name")[chance.below(2)] if chance.uniform(0.0, 1.0) < AT_WORK else ""
        at_work = at_work if kind in ENDING and target in machines[ENODE] else ""
        moment_s = chance.uniform(0.0, FLUSHING_S if at_work else MOMENT_S)
        is_member = shape.replicas > 1 and target in machines[ENODE]
        at_leader = is_member and chance.uniform(0.0, 1.0) < AT_THE_LEADER
        fault = PlannedFault(
            len(faults), at_s, kind, target, other, lasts_s, amount, packets, at_work, moment_s, at_leader
        )
        if targets and target != other:
            faults.append(fault)
        at_s += chance.uniform(0.1, 1.9) * gap_s
    return faults


def enode_machines(shape: ClusterShape) -> list[str]:
    """The names of all machines that keep a log."""
    names = [f"enode-{number}" for number in range(shape.enodes)]
    if shape.replicas == 1:
        return names
    return [f"{name}-{number}" for name in names for number in range(1, shape.replicas + 1)]


def _without(table: dict[str, FaultKind], left_out: Collection[str]) -> dict[str, FaultKind]:
    return {name: kind for name, kind in table.items() if name not in left_out}

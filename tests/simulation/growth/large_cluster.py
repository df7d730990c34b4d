"""A large simulated cluster and one of a quarter of its size: the work of the busiest machine of each role.

python -m tests.simulation.growth.large_cluster [--enodes 200] [--snodes 20]
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from ortoo.client import Client, ConsumerSettings
from ortoo.common.directory.topic import Permission, Placement
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.topics import Topic
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.machine import Machine
from ortoo.testing.simulation.world import World
from tests.simulation.growth.costs import GROWTH, LARGE_CLUSTER, Costs, findings
from tests.simulation.growth.meter import APPLICATION, Meter, MeteredLoop, role_of
from tests.simulation.scripted_cluster import ScriptedCluster, play

ENODES_OF_A_TOPIC = 4
TOPICS_OF_AN_ENODE = 2
CLIENTS_OF_A_SNODE = 4
SENT = 10
"""Messages of each client in a phase."""
SETTLE_S, IDLE_FROM_S, IDLE_S = 5.0, 40.0, 60.0
RESTARTED_SNODES, RESTARTED_ENODES = 5, 10
"""A rolling restart has one of this many snodes, or enodes."""
TRACED = {"namesrv": 1, "enode": 10, "snode": 5}
"""Lines and memory are counted for one of this many machines of each role, from the first one on."""
OF_THE_CLUSTER = ("database steps", "redis requests")
SHOWN = 5
"""Functions below a cost that grows too fast."""


def store_topics(world: World, enodes: int) -> None:
    """Topics on a few enodes each, so that every enode has some."""
    count = enodes * TOPICS_OF_AN_ENODE // ENODES_OF_A_TOPIC
    known, sets = [], {}
    for number in range(count):
        first = number * ENODES_OF_A_TOPIC // TOPICS_OF_AN_ENODE
        names = sorted(f"enode-{(first + at) % enodes}" for at in range(ENODES_OF_A_TOPIC))
        placed = PlacementSet.of(tuple(Placement(name, 1, 1) for name in names))
        sets[placed.set_id] = placed
        known.append(Topic(f"t{number}", 1 + number, 1, Permission.READ_WRITE, placed, 1))
    table = tables.placement_sets
    rows = [tables.row_of(table, one, set_id=set_id) for set_id, placed in sets.items() for one in placed]
    with world.database.engine.begin() as connection:
        connection.execute(sa.insert(tables.topics), [tables.row_of(tables.topics, one) for one in known])
        connection.execute(sa.insert(table), rows)


@dataclass
class Run:
    """One cluster, its clients, and the counted work of the phases."""

    enodes: int
    snodes: int
    costs: Costs = field(default_factory=dict)
    """The work of the busiest machine of each role in each phase."""
    functions: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    """The executed lines of each function in each phase, of the machine of each role with the most lines."""
    took_s: dict[str, float] = field(default_factory=dict)
    """Processor time of the simulation, which counts the work meanwhile."""
    sent: set[bytes] = field(default_factory=set)
    received: set[bytes] = field(default_factory=set)

    @contextmanager
    def phase(self, meter: Meter, name: str) -> Iterator[None]:
        """Count the work within the block."""
        began_s = time.process_time()
        with meter.counting() as work:
            yield
        self.costs[name] = busiest(meter.machines)
        self.costs[name].update({measure: work[measure] for measure in OF_THE_CLUSTER})
        self.functions[name] = busiest_functions(meter.functions)
        self.took_s[name] = time.process_time() - began_s

    async def send(self, clients: Sequence[Client], phase: str) -> None:
        """Send some messages with each client, all at the same time."""

        async def send_some(number: int, client: Client) -> None:
            async with client.producer(self.topic_of(number)) as producer:
                for at in range(SENT):
                    body = b"%s %d %d" % (phase.encode(), number, at)
                    await producer.send(body)
                    self.sent.add(body)

        async with asyncio.TaskGroup() as group:
            for number, client in enumerate(clients):
                group.create_task(send_some(number, client))

    def topic_of(self, number: int) -> str:
        """The topic of a client."""
        return f"t{number % (self.enodes * TOPICS_OF_AN_ENODE // ENODES_OF_A_TOPIC)}"

    async def consume(self, number: int, client: Client, joined: asyncio.Event) -> None:
        """Consume the topic of a client in a group of its own, until cancelled."""
        settings = ConsumerSettings(from_beginning=True, client_id=f"c{number}")
        async with client.consumer(f"g{number}", {self.topic_of(number): "*"}, settings) as consumer:
            joined.set()
            async for message in consumer:
                self.received.add(message.body)
                message.ack()

    async def wait_received(self, stage: ScriptedCluster) -> None:
        """Wait until the groups have received everything."""
        while not self.received >= self.sent:
            await stage.clock.sleep(0.2)


def is_traced(machine: str) -> bool:
    """Whether the lines and the memory of a machine are counted."""
    role = role_of(machine)
    return role in TRACED and int(machine.rpartition("-")[2]) % TRACED[role] == 0


def busiest(machines: Mapping[str, Counter[str]]) -> Counter[str]:
    """The largest cost of a machine, for each role and measure."""
    found: Counter[str] = Counter()
    for machine, measures in machines.items():
        for measure, cost in measures.items():
            key = f"{role_of(machine)} {measure}"
            found[key] = max(found[key], cost)
    return found


def busiest_functions(machines: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """The executed lines of each function, of the machine of each role with the most lines."""
    return {role_of(machine): machines[machine] for machine in sorted(machines, key=lambda one: machines[one].total())}


@asynccontextmanager
async def clients_of(stage: ScriptedCluster, run: Run) -> AsyncIterator[list[Client]]:
    """Clients, the same number at each snode."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(stage.connect(f"client-{number}", number % run.snodes))
            for number in range(run.snodes * CLIENTS_OF_A_SNODE)
        ]


async def restart(stage: ScriptedCluster, *machines: Machine) -> None:
    """Restart these machines, one after another."""
    for machine in machines:
        await machine.stop()
        machine.start()
        await machine.ready.wait()
        await stage.clock.sleep(SETTLE_S)


def measure(enodes: int, snodes: int) -> Run:
    """Run the phases."""
    run = Run(enodes, snodes)
    meters: list[Meter] = []

    def prepare(stage: ScriptedCluster) -> None:
        store_topics(stage.world, enodes)
        meters.append(Meter(stage.world, stage.cluster, is_traced))

    async def script(stage: ScriptedCluster) -> None:
        meter, cluster = meters[0], stage.cluster
        await stage.clock.sleep(1.5 * SETTLE_S)  # heartbeats began together; those of one round fall into the phase
        async with clients_of(stage, run) as clients, asyncio.TaskGroup() as group:
            with run.phase(meter, "sends"):
                await run.send(clients, "first")
                await stage.clock.sleep(SETTLE_S)  # each process sends its heartbeats once
            with run.phase(meter, "consumers join"):
                joined = [asyncio.Event() for _ in clients]
                tasks = [group.create_task(run.consume(at, one, joined[at])) for at, one in enumerate(clients)]
                await asyncio.gather(*(one.wait() for one in joined))
                await run.wait_received(stage)
            await stage.clock.sleep(IDLE_FROM_S)
            with run.phase(meter, "idle"):
                await stage.clock.sleep(IDLE_S)
            with run.phase(meter, "new topic"):
                await clients[0].admin.create_topic("new", enodes=["enode-0"])
                await stage.clock.sleep(SETTLE_S)
            with run.phase(meter, "restart of the name server"):
                await restart(stage, cluster.name_servers[0])
            with run.phase(meter, "restart of an enode"):
                await restart(stage, cluster.enodes[0])
            with run.phase(meter, "restart of a snode"):
                await restart(stage, cluster.snodes[0])
            with run.phase(meter, "rolling restart of snodes"):
                await restart(stage, *cluster.snodes[: max(1, snodes // RESTARTED_SNODES)])
            with run.phase(meter, "rolling restart of enodes"):
                await restart(stage, *cluster.enodes[: max(1, enodes // RESTARTED_ENODES)])
            await run.send(clients, "last")
            await run.wait_received(stage)
            for task in tasks:
                task.cancel()

    shape = ClusterShape(1, enodes, snodes)
    play(script, shape=shape, prepare=prepare, make_loop=MeteredLoop)
    return run


def main(arguments: Sequence[str]) -> int:
    """Print the costs in both clusters; returns the number of costs that grow too fast."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.growth.large_cluster", description=__doc__)
    parser.add_argument("--enodes", type=int, default=200)
    parser.add_argument("--snodes", type=int, default=20)
    given = parser.parse_args(arguments)
    few = measure(given.enodes // GROWTH, given.snodes // GROWTH)
    many = measure(given.enodes, given.snodes)
    wrong = {(one.step, one.measure) for one in findings(LARGE_CLUSTER, few.costs, many.costs)}
    for line in report(few, many, wrong):
        print(line)  # noqa: T201
    print(f"\n{len(many.received)} messages received; {len(wrong)} costs grow too fast")  # noqa: T201
    return len(wrong)


def report(few: Run, many: Run, wrong: Collection[tuple[str, str]]) -> Iterator[str]:
    """The lines about all costs, with the functions that make lines grow too fast."""
    for name, work in many.costs.items():
        yield f"\n{name} ({few.took_s[name]:.1f} and {many.took_s[name]:.1f} s of processor time)"
        for what, cost in sorted(work.items()):
            if what.startswith(APPLICATION):
                continue
            is_wrong = (name, what) in wrong
            yield f"  {what:22} {few.costs[name][what]:>12,} {cost:>12,}{'  TOO FAST' if is_wrong else ''}"
            if is_wrong and what.endswith("lines"):
                role, _ = what.split()
                grown = many.functions[name][role] - few.functions[name][role]
                yield from (f"    {lines:>12,} more in {function}" for function, lines in grown.most_common(SHOWN))


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))

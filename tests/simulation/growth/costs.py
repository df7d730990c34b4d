"""The cost of each step beside N of something and beside 4 N, and the exponents that are allowed.

python -m tests.simulation.growth.costs [--factor 2] [AXIS...]
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatch

from ortoo.testing.simulation.cluster.roles import STORE
from tests.simulation.growth.axes import AXES, GROUP, TOPIC, Axis, Stand
from tests.simulation.growth.meter import APPLICATION, Meter, MeteredLoop, role_of
from tests.simulation.scripted_cluster import ScriptedCluster, play

GROWTH = 4
"""The large number is this many times the small one."""
TOLERANCE = 1.125
"""Four times as many may cost 4.5 times as much where the exponent is 1."""
TOLERANCE_OF_MEMORY = 1.25
"""The same for memory, because the tables of dictionaries grow in steps."""
TOLERANCE_OF_CONSTANTS = 1.05
"""The same where the exponent is 0."""
NOISE: Mapping[str, float] = {
    "lines": 800,
    "turn_bytes": 65_536,
    "messages": 2,
    "sent_bytes": 256,
    "written_bytes": 512,
    "database steps": 100,
    "redis requests": 2,
}
"""A difference up to this is none, by measure: a heartbeat, a longer number, a table that gets larger."""
NOISES_OF_LONG_STEPS = 10
"""The noise while many are made, and in the phases of a large cluster, is this many times as large."""
SETTLE_S = 3.0
BEFORE_FILL_S = 1.5
"""Meanwhile the simulated disk gets the bytes of the first spare segment, which are not the enode's memory."""
AFTER_RESTART_S = 10.0
"""Within this time all processes have renewed their registrations, so that none falls into the next step."""
REPEATS = 3
"""The smallest cost of this many changes counts: the first one may fill caches, and others may meet a heartbeat."""
SEGMENT_BYTES = 1 << 20
"""Large enough for a run. A checkpoint for every few changes would hide their cost."""
AFTER_CHANGE_S = 0.3
"""A change includes the work that follows it within this time."""
IDLE_FROM_S = 30.0
IDLE_S = 60.0
FILL, IDLE, RESTART = "fill", "idle", "restart"

LARGE_CLUSTER = "large cluster"
"""The axis of `large_cluster`, whose costs are those of the busiest machine of each role."""

Costs = dict[str, Counter[str]]
"""The work of each step."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The exponent of a cost: with four times as many, it may be 4 ** exponent times as large."""

    axis: str
    step: str
    measure: str
    exponent: float
    why: str


TABLE: Sequence[Allowed] = (
    # The first row that fits decides. The names may have wildcards.
    Allowed("*", IDLE, "enode written_bytes", -1.0, "an idle cluster writes nothing"),
    Allowed(LARGE_CLUSTER, "sends", "enode written_bytes", 0.0, "an enode stores the same number of messages"),
    Allowed(LARGE_CLUSTER, "sends", "?node lines", 0.25, "the same number of messages, and heartbeats of all"),
    Allowed(LARGE_CLUSTER, "*", "* turn_bytes", 1.0, "a turn handles one message, which has at most all processes"),
    Allowed(LARGE_CLUSTER, "consumers join", "namesrv *", 2.0, "groups × processes: each process gets each new group"),
    Allowed(
        LARGE_CLUSTER,
        "restart of the name server",
        "namesrv *",
        2.0,
        "processes × snodes: each snode gets each registration",
    ),
    Allowed(LARGE_CLUSTER, "rolling restart *", "namesrv *", 2.0, "restarts × snodes: each snode gets each restart"),
    Allowed(LARGE_CLUSTER, "rolling restart *", "*", 2.0, "restarts × machines: heartbeats of all, in more time"),
    Allowed(LARGE_CLUSTER, "*", "*", 1.0, "machines: heartbeats every 5 s to or from all, and each change once"),
    Allowed("topics*", IDLE, "enode lines", 1.0, "every 10 s the backlog of each topic is measured"),
    Allowed("groups", IDLE, "enode lines", 1.0, "every 10 s the backlog of each group is measured"),
    Allowed("lite topics", IDLE, "enode lines", 1.0, "every 10 s the backlog of each lite topic is measured"),
    Allowed("nacked messages", IDLE, "enode lines", 1.0, "every 10 s each failed message is counted"),
    Allowed("open transactions", IDLE, "enode lines", 1.0, "every 10 s the open transactions are counted"),
    Allowed("queues", IDLE, "snode sent_bytes", 1.0, "every 30 s a client asks for its route, which lists all queues"),
    Allowed("clients", IDLE, "*", 1.0, "every 30 s each client asks for its route"),
    Allowed("sessions", IDLE, "*", 1.0, "every 30 s each session repeats its wait, and its client asks for its route"),
    Allowed("snodes", "restart namesrv", "*", 2.0, "processes × snodes: each snode gets each registration"),
    Allowed("enodes", "*", "*", 1.0, "all enodes follow each change, and have timers"),
    Allowed("snodes", "*", "*", 1.0, "all snodes follow each change, and have timers"),
    Allowed("members of one group", "*", "*", 1.0, "a join moves queues, and all members are told"),
    Allowed("topics of two name servers", "*", "database steps", 1.0, "the sums of all rows are compared, 0.1 µs each"),
    Allowed("*", FILL, "*", 1.0, "each one costs the same"),
    Allowed("*", "restart *", "*", 1.0, "each one is read once"),
    Allowed("*", "*", "*", 0.0, "a change costs the same beside more of anything, and so does idleness"),
)


def allowed(axis: str, step: str, measure: str) -> Allowed:
    """The row of the table for a cost."""
    return next(
        row for row in TABLE if fnmatch(axis, row.axis) and fnmatch(step, row.step) and fnmatch(measure, row.measure)
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """A cost that grows faster than the table allows."""

    axis: str
    step: str
    measure: str
    few: int
    many: int
    allowed: Allowed

    def __str__(self) -> str:
        """One line."""
        ratio = self.many / self.few if self.few else float("inf")
        return (
            f"{self.axis}, {self.step}: {self.measure} {self.few:,} -> {self.many:,} ({ratio:.2f} times; "
            f"allowed exponent {self.allowed.exponent:g}: {self.allowed.why})"
        )


def is_allowed(few: int, many: int, measure: str, exponent: float, noises: float = 1.0) -> bool:
    """Whether a cost with N, and with 4 N, fits an exponent; -1 = nothing at all. `noises` multiplies the noise."""
    if exponent < 0:
        return few == many == 0
    noise = next(value for kind, value in NOISE.items() if measure.endswith(kind))
    larger = TOLERANCE_OF_MEMORY if measure.endswith("turn_bytes") else TOLERANCE
    tolerance = larger if exponent else TOLERANCE_OF_CONSTANTS
    return bool(many <= tolerance * GROWTH**exponent * few + noises * noise)


def findings(name: str, few: Costs, many: Costs) -> Iterator[Finding]:
    """The costs of the cluster that grow too fast."""
    for step, work in many.items():
        for measure, cost in work.items():
            if measure.startswith(APPLICATION):
                continue
            row = allowed(name, step, measure)
            noises = NOISES_OF_LONG_STEPS if step == FILL or name == LARGE_CLUSTER else 1
            if not is_allowed(few[step][measure], cost, measure, row.exponent, noises):
                yield Finding(name, step, measure, few[step][measure], cost, row)


def costs_of(axis: Axis, count: int, *, steps: Sequence[str] = (), long: bool = False) -> Costs:
    """The costs of an axis beside `count` of its things. `steps` = only these; empty = all.

    `long` adds the making of many, idleness and restarts.
    """
    costs: Costs = {}
    chosen = set(steps or (*axis.changes, *((FILL, IDLE, RESTART) if long else ())))

    async def script(stage: ScriptedCluster) -> None:
        meter = Meter(stage.world, stage.cluster)
        async with AsyncExitStack() as closing:
            client = await closing.enter_async_context(stage.connect("operator"))
            await client.admin.create_topic(TOPIC, queue_count=axis.queue_count)
            await client.admin.create_topic("parent", message_type="lite")
            await client.admin.put_group(GROUP)
            producer = await closing.enter_async_context(client.producer(TOPIC))
            stand = Stand(stage, client, producer, closing)
            if axis.fill is not None:
                if FILL in chosen and axis.is_fill_counted:
                    await stage.clock.sleep(BEFORE_FILL_S)
                    with meter.counting() as costs[FILL]:
                        await axis.fill(stand, count)
                else:
                    await axis.fill(stand, count)
            await stage.clock.sleep(SETTLE_S)
            for name in sorted(chosen & axis.changes.keys()):
                works = []
                for number in range(REPEATS):
                    with meter.counting() as work:
                        await axis.changes[name](stand, number)
                        await stage.clock.sleep(AFTER_CHANGE_S)
                    works.append(work)
                costs[name] = smallest(works)
            if IDLE in chosen:
                await stage.clock.sleep(IDLE_FROM_S)
                with meter.counting() as costs[IDLE]:
                    await stage.clock.sleep(IDLE_S)
            if RESTART in chosen and axis.restarts:
                await restart(stage, meter, costs)

    def prepare(stage: ScriptedCluster) -> None:
        axis.store(stage.world, count)
        for enode in stage.cluster.enodes:
            enode.chosen["store"] = replace(STORE, segment_bytes=SEGMENT_BYTES)

    play(script, shape=axis.shape(count), prepare=prepare, make_loop=MeteredLoop)
    return costs


async def restart(stage: ScriptedCluster, meter: Meter, costs: Costs) -> None:
    """Restart one machine of each role."""
    cluster = stage.cluster
    for machine in (cluster.name_servers[0], cluster.enodes[0], cluster.snodes[0]):
        with meter.counting() as costs[f"{RESTART} {role_of(machine.name)}"]:
            await machine.stop()
            machine.start()
            await machine.ready.wait()
            await stage.clock.sleep(AFTER_RESTART_S)


def smallest(works: Sequence[Counter[str]]) -> Counter[str]:
    """The smallest value of each measure."""
    measures = {measure for work in works for measure in work}
    return Counter({one: min(work[one] for work in works) for one in sorted(measures)})


def compare(name: str, *, factor: int = 1, steps: Sequence[str] = (), long: bool = False) -> tuple[Costs, Costs]:
    """The costs of an axis with N and with 4 N; `factor` multiplies both."""
    axis = AXES[name]
    few = costs_of(axis, factor * axis.few, steps=steps, long=long)
    return few, costs_of(axis, GROWTH * factor * axis.few, steps=steps, long=long)


def main(arguments: Sequence[str]) -> int:
    """Print the costs of the axes; returns the number of costs that grow too fast."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.growth.costs", description=__doc__)
    parser.add_argument("axes", nargs="*", metavar="AXIS", help="the axes; all if none is named")
    parser.add_argument("--factor", type=int, default=2, help="multiplies the numbers of all axes")
    parser.add_argument("--all", action="store_true", help="print also the costs of applications")
    given = parser.parse_args(arguments)
    failed = 0
    for name in given.axes or AXES:
        few, many = compare(name, factor=given.factor, long=True)
        wrong = {(one.step, one.measure): one for one in findings(name, few, many)}
        failed += len(wrong)
        count = given.factor * AXES[name].few
        print(f"\n{name}: {count} and {GROWTH * count}")  # noqa: T201
        for step, work in many.items():
            for measure, cost in work.items():
                if given.all or not measure.startswith(APPLICATION):
                    before = few[step][measure]
                    mark = "  TOO FAST" if (step, measure) in wrong else ""
                    print(f"  {step:16} {measure:22} {before:>12,} {cost:>12,}{mark}")  # noqa: T201
    print(f"\n{failed} costs grow too fast")  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))

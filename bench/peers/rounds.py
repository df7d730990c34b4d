"""One round of each system: start, warm up, load, stop."""

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.peers.kafka import FLUSHED, SHIPPED, kafka
from bench.peers.load import Load, java_load, python_load
from bench.peers.ours import ortoo, ortoo_members
from bench.peers.rocketmq import rocketmq
from bench.peers.servers import Servers
from bench.report import Figures

QUEUES, BODY_BYTES = 8, 256
BACKLOG, STEADY = "bench", "steady"
IN_FLIGHT, IN_FLIGHT_OF_PYTHON = (1, 16, 64), (1, 16)
THREADS, BATCH = 16, 32
STEADY_PER_S = 200
WAYS, WAYS_OF_THREE = ("many", "each", "tasks", "read", "steady"), ("many", "steady")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit of measured processor time: zero means less than one tick."""
SHARE_READ = 0.9
"""Share of a backlog to read: the last messages, held by slow threads, do not delay the end."""
Opened = Callable[[Path], AbstractAsyncContextManager[Servers]]
Measured = Callable[[Path, float], Awaitable[Figures]]


def machine_busy_s() -> float:
    """Processor seconds of the whole machine that were not idle, including time stolen by its host."""
    _, user, nice, system, _, _, *others = Path("/proc/stat").read_text().splitlines()[0].split()[:9]
    return sum(map(int, (user, nice, system, *others))) / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True, slots=True)
class System:
    """A system that is measured in each round."""

    name: str
    measure: Measured

    async def round(self, seconds: float) -> Figures:
        """Measure it once, in an empty folder."""
        load_average, busy_s, own_s, began = os.getloadavg()[0], machine_busy_s(), own_cpu_s(), time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="ortoo-peers-") as folder:
            figures = await self.measure(Path(folder), seconds)
        others_s = (machine_busy_s() - busy_s) - (own_cpu_s() - own_s)
        machine_s = (time.perf_counter() - began) * len(os.sched_getaffinity(0))
        return {
            **figures,
            "load_average": {"before": load_average, "after": os.getloadavg()[0]},
            "others_share": round(max(0.0, others_s / machine_s), 3),
        }


def single(name: str, opened: Opened) -> System:
    """One message at a time, by the official Java client of RocketMQ."""

    async def measure(folder: Path, seconds: float) -> Figures:
        (folder / "load").mkdir()
        (folder / name).mkdir()
        async with java_load(folder / "load", BODY_BYTES) as load:
            began = time.perf_counter()
            async with opened(folder / name) as servers:
                await load.run("first", servers.address, BACKLOG)
                first_send_s = round(time.perf_counter() - began, 2)
                figures = {"first_send_s": first_send_s, **await _singly(load, servers, seconds)}
                return figures | await _by_python(folder / "load", servers, seconds)

    return System(name, measure)


async def _singly(load: Load, servers: Servers, seconds: float) -> Figures:
    await asyncio.sleep(seconds / 4)  # start-up is complete
    before = servers.cpu_s()
    await asyncio.sleep(seconds / 2)
    idle_s = sum(after - before[name] for name, after in servers.cpu_s().items())
    idle_share = max(idle_s, TICK_S) / (seconds / 2)
    figures: Figures = {"idle_processor_share": round(idle_share, 4), "idle": servers.memory_mib()}
    for topic, group in ((BACKLOG, "simple"), (BACKLOG, "push"), (STEADY, "steady")):
        await load.run("anchor", topic, group)
    sent = (await load.run("send", BACKLOG, max(IN_FLIGHT), seconds))["messages"]
    for in_flight in IN_FLIGHT:
        one = await load.run("send", BACKLOG, in_flight, seconds, servers=servers)
        sent += one["messages"]
        figures[f"send {in_flight}"] = one
    window = (seconds / 2, seconds, int(sent * SHARE_READ))
    figures["simple"] = await load.run("simple", BACKLOG, "simple", THREADS, BATCH, *window, servers=servers)
    figures["push"] = await load.run("push", BACKLOG, "push", THREADS, *window, servers=servers)
    rate = (STEADY_PER_S, seconds / 2, seconds)
    figures["steady"] = await load.run("steady", STEADY, "steady", THREADS, *rate, servers=servers)
    figures["loaded"] = servers.memory_mib()
    return figures


async def _by_python(folder: Path, servers: Servers, seconds: float) -> Figures:
    """Sends by the official Python client."""
    figures: Figures = {}
    async with python_load(folder, "official_python", BODY_BYTES) as load:
        for in_flight in IN_FLIGHT_OF_PYTHON:
            command = ("send", servers.address, BACKLOG, in_flight, seconds / 4)
            figures[f"python {in_flight}"] = await load.run(*command, servers=servers)
    return figures


def bulk(name: str, client: str, ways: Mapping[str, tuple[str, ...]], opened: Opened) -> System:
    """From one Python process: the ways of each topic, by Ortoo's client or by librdkafka."""

    async def measure(folder: Path, seconds: float) -> Figures:
        (folder / "load").mkdir()
        (folder / name).mkdir()
        figures: Figures = {}
        async with python_load(folder / "load", "python_client", BODY_BYTES) as load, opened(folder / name) as servers:
            for topic, some in ways.items():
                await load.run(client, "many", servers.address, topic, seconds / 2)  # the JIT compiles this code
                for way in some:
                    command = (client, way, servers.address, topic, seconds / 2, STEADY_PER_S)
                    figures[f"{topic} {way}"] = await load.run(*command, servers=servers)
        return figures

    return System(name, measure)


SYSTEMS = (
    single("ortoo", partial(ortoo, topics=(BACKLOG, STEADY), queues=QUEUES)),
    single("rocketmq", partial(rocketmq, topics=(BACKLOG, STEADY), queues=QUEUES)),
    bulk("ortoo in bulk", "ortoo", {"bench": WAYS}, partial(ortoo, topics=("bench",), queues=QUEUES)),
    bulk(
        "kafka",
        "kafka",
        {"shipped": WAYS, "flushed": WAYS},
        partial(kafka, brokers=1, topics={"shipped": SHIPPED, "flushed": FLUSHED}, queues=QUEUES),
    ),
    bulk(
        "ortoo of three",
        "ortoo",
        {"bench": WAYS_OF_THREE},
        partial(ortoo_members, topics=("bench",), queues=QUEUES),
    ),
    bulk(
        "kafka of three",
        "kafka",
        {"shipped": WAYS_OF_THREE, "flushed": WAYS_OF_THREE},
        partial(kafka, brokers=3, topics={"shipped": SHIPPED, "flushed": FLUSHED}, queues=QUEUES),
    ),
)
"""In the order of a round: systems to compare are adjacent."""

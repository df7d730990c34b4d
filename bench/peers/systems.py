"""The systems of the comparison, and the figures of each."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from bench.peers.kafka import FLUSHED, SHIPPED, kafka
from bench.peers.load import Load, LoadFailed, java_load, python_load
from bench.peers.ours import ortoo, ortoo_members
from bench.peers.rocketmq import rocketmq
from bench.peers.rounds import Plan, System, warm_up
from bench.peers.servers import Servers
from bench.report import Figures

QUEUES, BODY_BYTES = 8, 256
BACKLOG, STEADY = "bench", "steady"
IN_FLIGHT, IN_FLIGHT_OF_PYTHON = (1, 16, 64), (1, 16)
THREADS, BATCH = 16, 32
STEADY_PER_S = 200
WAYS, WAYS_OF_THREE = ("many", "each", "tasks", "read", "steady"), ("many", "steady")
BULK_SENDS = ("many", "each")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit of measured processor time: zero means less than one tick."""
SETTLE_S = 1.0
SHARE_READ = 0.9
"""Share of a backlog to read: the last messages, held by slow threads, do not delay the end."""
RESERVE = 1.5
"""A backlog is filled until it lasts this many times as long as it is read."""
FILL_S = 5.0
Opened = Callable[[Path], AbstractAsyncContextManager[Servers]]


class Single(System):
    """One message at a time, by the official Java client of RocketMQ, and sends by the official Python client."""

    _servers: Servers
    _java: Load
    _python: Load

    def __init__(self, name: str, opened: Opened) -> None:
        """`opened` runs the servers in a folder."""
        self.name = name
        self._opened = opened
        self._sent = 0
        self._received: dict[str, int] = {"simple": 0, "push": 0}
        self._per_s: dict[str, float] = {}
        """The last rate of each way to consume."""

    @asynccontextmanager
    async def running(self, folder: Path, plan: Plan) -> AsyncIterator[Figures]:
        """Its figures are the time to the first send, and memory and processor time of the idle servers."""
        for name in ("java", "python", "servers"):
            (folder / name).mkdir()
        self._sent, self._received = 0, dict.fromkeys(self._received, 0)
        async with (
            java_load(folder / "java", BODY_BYTES) as self._java,
            python_load(folder / "python", "official_python", BODY_BYTES) as self._python,
        ):
            began = time.perf_counter()
            async with self._opened(folder / "servers") as self._servers:
                await self._java.run("first", self._servers.address, BACKLOG)
                first_send_s = round(time.perf_counter() - began, 2)
                yield {"first_send_s": first_send_s, **await self._idle(plan)}

    async def _idle(self, plan: Plan) -> Figures:
        await asyncio.sleep(plan.idle_s)
        before, began = self._servers.cpu_s(), time.perf_counter()
        await asyncio.sleep(plan.idle_s / 4)
        idle_s = sum(after - before[name] for name, after in self._servers.cpu_s().items())
        share = max(idle_s, TICK_S) / (time.perf_counter() - began)
        return {"idle_processor_share": round(share, 4), "idle": self._servers.memory_mib()}

    def process_ids(self) -> list[int]:
        """Servers, and both clients."""
        return [*self._servers.process_ids.values(), self._java.process_id, self._python.process_id]

    async def settle(self) -> None:
        """A send, and a receive with its acknowledgement, by the Java client; a send by the other client."""
        for topic, group in ((BACKLOG, "settle"), (STEADY, "settle")):
            await self._java.run("anchor", topic, group)
        if (await self._send(max(IN_FLIGHT), SETTLE_S))["errors"]:
            raise LoadFailed("sends fail after a pause")
        await self._by_python(1, SETTLE_S)

    async def warm_up(self, plan: Plan) -> Figures:
        """One load after another; every consumer has a place in its topic first."""
        for topic, group in ((BACKLOG, "simple"), (BACKLOG, "push"), (STEADY, "steady")):
            await self._java.run("anchor", topic, group)
        figures: Figures = {}
        for in_flight in reversed(IN_FLIGHT):
            figures[f"send {in_flight}"] = await warm_up(partial(self._send, in_flight, plan.window_s), plan)
        for way in self._received:
            figures[way] = await warm_up(partial(self._consume, way, plan.window_s), plan)
        for in_flight in IN_FLIGHT_OF_PYTHON:
            figures[f"python {in_flight}"] = await warm_up(partial(self._by_python, in_flight, plan.window_s), plan)
        await self._steady(plan.warm_up_min_s / 2, plan.warm_up_min_s / 2)
        return figures

    async def measure(self, plan: Plan) -> Figures:
        """Every load, and the memory after it."""
        seconds = plan.seconds
        figures: Figures = {f"send {n}": await self._send(n, seconds) for n in IN_FLIGHT}
        figures |= {way: await self._consume(way, seconds) for way in self._received}
        figures |= {f"python {n}": await self._by_python(n, seconds / 2) for n in IN_FLIGHT_OF_PYTHON}
        figures["steady"] = await self._steady(seconds / 2, seconds)
        figures["loaded"] = self._servers.memory_mib()
        return figures

    async def _send(self, in_flight: int, seconds: float) -> Figures:
        figures = await self._java.run("send", BACKLOG, in_flight, seconds, servers=self._servers)
        self._sent += figures["messages"]
        return figures

    async def _consume(self, way: str, seconds: float) -> Figures:
        """Consume for a while after half of that while, of a backlog that lasts longer."""
        warm_s = seconds / 2
        while self._sent - self._received[way] < RESERVE * (seconds + warm_s) * self._per_s.get(way, 5_000):
            await self._send(max(IN_FLIGHT), FILL_S)
        threads = (THREADS, BATCH) if way == "simple" else (THREADS,)
        window = (warm_s, seconds, int((self._sent - self._received[way]) * SHARE_READ))
        figures = await self._java.run(way, BACKLOG, way, *threads, *window, servers=self._servers)
        self._received[way] += figures["received"]
        self._per_s[way] = figures["per_s"]
        return figures

    async def _by_python(self, in_flight: int, seconds: float) -> Figures:
        command = ("send", self._servers.address, BACKLOG, in_flight, seconds)
        figures = await self._python.run(*command, servers=self._servers)
        self._sent += figures["messages"]
        return figures

    async def _steady(self, warm_s: float, seconds: float) -> Figures:
        command = ("steady", STEADY, "steady", THREADS, STEADY_PER_S, warm_s, seconds)
        return await self._java.run(*command, servers=self._servers)


class Bulk(System):
    """From one Python process: some ways of each topic, by Ortoo's client or by librdkafka."""

    _servers: Servers
    _load: Load

    def __init__(self, name: str, client: str, ways: Mapping[str, Sequence[str]], opened: Opened) -> None:
        """`client` is `ortoo` or `kafka`; `ways` are those of each topic; `opened` runs the servers in a folder."""
        self.name = name
        self._client = client
        self._ways = ways
        self._opened = opened

    @asynccontextmanager
    async def running(self, folder: Path, plan: Plan) -> AsyncIterator[Figures]:
        """It has no figures of the start: those of one message at a time are enough."""
        for name in ("load", "servers"):
            (folder / name).mkdir()
        async with (
            python_load(folder / "load", "python_client", BODY_BYTES) as self._load,
            self._opened(folder / "servers") as self._servers,
        ):
            yield {}

    def process_ids(self) -> list[int]:
        """Servers and client."""
        return [*self._servers.process_ids.values(), self._load.process_id]

    async def settle(self) -> None:
        """Send to each topic."""
        for topic in self._ways:
            await self._run(topic, "many", SETTLE_S)

    async def warm_up(self, plan: Plan) -> Figures:
        """One way after another, after the topics that are read have their backlog."""
        figures: Figures = {}
        for topic, ways in self._ways.items():
            stored = 0
            while "read" in ways and stored < plan.stored_messages:
                stored += (await self._run(topic, "many", FILL_S))["messages"]
            for way in ways:
                if way == "steady":
                    await self._run(topic, way, plan.warm_up_min_s)
                else:
                    figures[f"{topic} {way}"] = await warm_up(partial(self._run, topic, way, plan.window_s), plan)
        return figures

    async def measure(self, plan: Plan) -> Figures:
        """Every way of every topic; reading takes the whole time of the plan, the others half of it.

        Bulk sends are measured after a window that does not count, because memory is slow after a pause.
        """
        figures: Figures = {}
        for topic, ways in self._ways.items():
            for way in ways:
                if way in BULK_SENDS:
                    await self._run(topic, way, plan.window_s)
                figures[f"{topic} {way}"] = await self._run(
                    topic, way, plan.seconds if way == "read" else plan.seconds / 2
                )
        return figures

    async def _run(self, topic: str, way: str, seconds: float) -> Figures:
        command = (self._client, way, self._servers.address, topic, seconds, STEADY_PER_S)
        return await self._load.run(*command, servers=self._servers)


def groups() -> tuple[tuple[System, ...], ...]:
    """The systems, those that run at the same time together: they are compared with each other."""
    both = {"shipped": SHIPPED, "flushed": FLUSHED}
    return (
        (
            Single("ortoo", partial(ortoo, topics=(BACKLOG, STEADY), queues=QUEUES)),
            Single("rocketmq", partial(rocketmq, topics=(BACKLOG, STEADY), queues=QUEUES)),
        ),
        (
            Bulk("ortoo in bulk", "ortoo", {"bench": WAYS}, partial(ortoo, topics=("bench",), queues=QUEUES)),
            Bulk("kafka", "kafka", dict.fromkeys(both, WAYS), partial(kafka, brokers=1, topics=both, queues=QUEUES)),
        ),
        (
            Bulk(
                "ortoo of three",
                "ortoo",
                {"bench": WAYS_OF_THREE},
                partial(ortoo_members, topics=("bench",), queues=QUEUES),
            ),
            Bulk(
                "kafka of three",
                "kafka",
                dict.fromkeys(both, WAYS_OF_THREE),
                partial(kafka, brokers=3, topics=both, queues=QUEUES),
            ),
        ),
    )

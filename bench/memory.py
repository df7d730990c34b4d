"""The memory of each process: with a long backlog, with many consumers behind it, and over time."""

import argparse
import asyncio
import time

from bench.crowd import reading
from bench.processes import Cluster, cluster
from bench.report import Figures, main
from bench.traffic import make_topic, produce_for, ticks
from ortoo.client import Client, connect

METHOD = (
    "a backlog is produced. Consumers in a separate process, ten a group, read it from the first message. Then the "
    "producer continues. The largest resident memory of producer, snode and enode after each phase. With --minutes, "
    "the growth while a steady stream passes, first third left out"
)
CONSUMERS_A_GROUP = 10
TOPIC_QUEUES = 20


async def measure(options: argparse.Namespace) -> Figures:
    """Peaks of the phases, and the growth over time if `--minutes` is set."""
    backlog = int(options.backlog_mb * 1e6 / options.body_bytes)
    groups = max(1, options.consumers // CONSUMERS_A_GROUP)
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", TOPIC_QUEUES)
        idle = roles.memory_peak_mib()
        async with mq.producer("bench") as producer:
            sent = await produce_for(producer, options.body_bytes, 600.0, messages_max=backlog)
            after_backlog = roles.memory_peak_mib()
            received = await _read_on(roles, options, groups, backlog)
            await produce_for(producer, options.body_bytes, 1.0)
        after_reading = roles.memory_peak_mib()
        steady = await _steady(roles, mq, options) if options.minutes else None
    figures: Figures = {
        "backlog_mb": options.backlog_mb,
        "consumers": options.consumers,
        "groups": groups,
        "messages_per_s": round(sent.messages_per_s),
        "received_messages": received,
        "peak_mib": {"idle": idle, "after the backlog": after_backlog, "after the consumers": after_reading},
        "baselines": {"idle": idle},
        "ratios": {},
    }
    return figures if steady is None else {**figures, "steady": steady}


async def _read_on(roles: Cluster, options: argparse.Namespace, groups: int, backlog: int) -> int:
    """Let the consumers read for `options.seconds`, or until they have the backlog; the number of messages received."""
    received = 0
    async with reading(roles.address, "bench", options.consumers, groups) as readers:
        stop_at = time.perf_counter() + options.seconds
        while time.perf_counter() < stop_at and received < backlog * groups:
            received = await readers.received()
    return received


async def _steady(roles: Cluster, mq: Client, options: argparse.Namespace) -> Figures:
    """Samples of memory while messages pass at a fixed rate, and its growth in MiB a minute."""
    await make_topic(roles.address, "steady", 8)
    samples: dict[str, list[tuple[float, float]]] = {"snode": [], "enode": [], "namesrv": []}
    chunk, per_chunk = [bytes(options.body_bytes)] * 100, 100
    seconds = options.minutes * 60

    async def watch() -> None:
        began = time.perf_counter()
        async for planned in ticks(0.2, int(seconds / 5)):
            for role, mib in roles.memory_mib().items():
                samples[role].append((planned - began, mib))

    async with mq.producer("steady") as producer, reading(roles.address, "steady", 8, 1) as readers:
        await readers.received()
        watching = asyncio.get_running_loop().create_task(watch())
        async for _ in ticks(options.rate / per_chunk, int(seconds * options.rate / per_chunk)):
            await producer.send_many(chunk)
        await producer.flush()
        await watching
    settled = {role: taken[len(taken) // 3 :] for role, taken in samples.items()}
    return {
        "minutes": options.minutes,
        "messages_per_s": options.rate,
        "last_mib": {role: taken[-1][1] for role, taken in settled.items()},
        "growth_mib_per_minute": {role: round(60 * slope(taken), 3) for role, taken in settled.items()},
    }


def slope(points: list[tuple[float, float]]) -> float:
    """The slope of the straight line that fits (x, y) points best."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


if __name__ == "__main__":
    main(
        "memory", METHOD, measure, backlog_mb=1000.0, body_bytes=256, consumers=100, seconds=20.0, minutes=0.0,
        rate=20_000.0,
    )  # fmt: skip

"""One of ten consumers freezes under load: it is evicted in time, the others hardly notice, and it recovers.

    python -m tests.e2e.slow_replica --rate 5000 --seconds 12 --grace-s 10

Each consumer is a process of its own, so that a frozen one is really frozen. Latency is from the creation of a message
to its arrival. The consumers measure it before and after the freeze, in periods of equal length. A long grace makes the
periods long and their percentiles steady.
"""

import argparse
import asyncio
import json
import os
import signal
import struct
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from ortoo.client import ConsumerSettings, connect
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import admin_pb2_grpc, client_pb2
from ortoo.verification.forks.spawning import Spawned, spawn
from tests.e2e.consumer_cluster import ConsumerCluster, consumer_cluster, ends_of
from tests.e2e.drill import run_drill

TOPIC, GROUP = "flow", "workers"
MEMBERS, QUEUES = 10, 20
THRESHOLD = 300
BATCH = 50
_MADE_S = struct.Struct("<d")
"""By the machine's monotonic clock, which all processes share."""


@dataclass(frozen=True, slots=True)
class SlowReplica:
    """The results."""

    rate: float
    evicted_after_s: float
    grace_s: float
    p99_before_ms: float
    p99_frozen_ms: float
    """Of the others' own queues while one consumer is frozen and not evicted yet."""
    p99_moving_ms: float
    """Of all queues around the eviction, including those that waited for it."""
    p99_later_ms: float
    """With nine consumers."""
    sent: int
    missing: int
    duplicates: int
    early_duplicates: int
    """Duplicates of messages that the frozen consumer had acknowledged."""
    resumed: bool
    faults: list[str] = field(default_factory=list)


async def member(address: str, name: str, out: Path) -> None:
    """One consumer: writes `queue offset latency_ms at_ms` of each message, until the process is told to end."""
    clock = SystemClock()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ConsumerSettings(from_beginning=True, client_id=name)
    async with connect([address]) as mq, mq.consumer(GROUP, TOPIC, settings) as consumer, Background("m") as background:

        async def consume() -> None:
            with out.open("w", buffering=1) as book:
                async for batch in consumer.batches():
                    now_ms, now_s = clock.now_ms(), clock.monotonic_s()
                    for offset, body in zip(batch.offsets, batch.bodies(), strict=True):
                        latency_ms = (now_s - _MADE_S.unpack_from(body)[0]) * 1000
                        book.write(f"{batch.queue.queue_id} {offset} {latency_ms:.2f} {now_ms}\n")
                    batch.ack()

        background.spawn("consume", consume())
        await stop.wait()


@dataclass(frozen=True, slots=True)
class Line:
    """One delivery."""

    place: tuple[int, int]
    latency_ms: float
    at_ms: int


def lines_of(out: Path) -> list[Line]:
    """The lines that a consumer wrote; an unfinished line is left out."""
    found = []
    for text in out.read_text().split("\n")[:-1] if out.exists() else ():
        queue_id, offset, latency_ms, at_ms = text.split()
        found.append(Line((int(queue_id), int(offset)), float(latency_ms), int(at_ms)))
    return found


def p99(lines: Iterable[Line]) -> float:
    """The median, over half seconds, of the 99th percentile in each: a single stall of the machine has no effect."""
    halves = defaultdict[int, list[float]](list)
    for line in lines:
        halves[line.at_ms // 500].append(line.latency_ms)
    return round(median(sorted(half)[int(len(half) * 0.99)] for half in halves.values()), 2) if halves else 0.0


async def slow_replica(folder: Path, *, rate: float, seconds: float, grace_s: float = 3.0) -> SlowReplica:
    """Run it."""
    async with consumer_cluster(folder, snodes=1) as running:
        outs = [folder / f"member-{number}" for number in range(MEMBERS)]
        async with connect(running.addresses) as mq:
            await mq.admin.create_topic(TOPIC, queue_count=QUEUES)
        processes = [
            await spawn(
                *(sys.executable, "-m", "tests.e2e.slow_replica", "--member", running.addresses[0], f"m-{n}", str(out)),
                env=os.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=sys.stderr,
            )
            for n, out in enumerate(outs)
        ]
        try:
            return await _watch(running, outs, processes, rate=rate, seconds=seconds, grace_s=grace_s)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                    await process.wait()


async def _watch(
    running: ConsumerCluster,
    outs: Sequence[Path],
    processes: Sequence[Spawned],
    *,
    rate: float,
    seconds: float,
    grace_s: float,
) -> SlowReplica:
    clock, sent, stop = SystemClock(), 0, asyncio.Event()
    async with connect(running.addresses) as mq, Background("run") as background:
        channel = mq.admin._connection.channel()
        admin = admin_pb2_grpc.AdminServiceStub(channel)
        await admin.UpdateGroup(
            client_pb2.UpdateGroupRequest(
                name=GROUP, slow_consumer_grace_ms=int(grace_s * 1000), slow_consumer_threshold_messages=THRESHOLD
            )
        )
        active = client_pb2.ListConsumersRequest(group=GROUP)

        async def count() -> int:
            try:
                return sum(one.active for one in (await admin.ListConsumers(active)).consumers)
            except Exception:
                return 0

        async def produce() -> None:
            nonlocal sent
            began_s = clock.monotonic_s()
            async with mq.producer(TOPIC) as producer:
                while not stop.is_set():
                    made = _MADE_S.pack(clock.monotonic_s())
                    await producer.send_many([made + os.urandom(56) for _ in range(BATCH)])  # noqa: TID251 - any do
                    sent += BATCH
                    await clock.sleep(max(0.0, began_s + sent / rate - clock.monotonic_s()))

        async with asyncio.timeout(60):
            while await count() < MEMBERS:
                await clock.sleep(0.1)
        producing = background.spawn("produce", produce())
        await clock.sleep(seconds)
        frozen_ms, frozen_s = clock.now_ms(), clock.monotonic_s()
        processes[0].send_signal(signal.SIGSTOP)
        async with asyncio.timeout(60):
            while await count() == MEMBERS:
                await clock.sleep(0.05)
        evicted_s = clock.monotonic_s() - frozen_s
        evicted_ms = clock.now_ms()
        await clock.sleep(seconds)
        back_ms = clock.now_ms()
        processes[0].send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            while await count() < MEMBERS:
                await clock.sleep(0.1)
        await clock.sleep(2)
        stop.set()
        await producing
        ends = {queue.queue_id: end for queue, end in (await ends_of(mq, TOPIC)).items()}
        deadline_s = clock.monotonic_s() + 30
        while True:
            books = [lines_of(out) for out in outs]
            got = {line.place for book in books for line in book}
            missing = sum(ends.values()) - len(got)
            if missing <= 0 or clock.monotonic_s() > deadline_s:
                break
            await clock.sleep(0.5)
    return _judge(books, rate, sent, missing, evicted_s, grace_s, (frozen_ms, evicted_ms, back_ms))


def _judge(
    books: Sequence[Sequence[Line]],
    rate: float,
    sent: int,
    missing: int,
    evicted_s: float,
    grace_s: float,
    moments: tuple[int, int, int],
) -> SlowReplica:
    frozen_ms, evicted_ms, back_ms = moments
    others = [line for book in books[1:] for line in book]
    mine = {line.place[0] for line in books[0] if line.at_ms <= frozen_ms}
    # During the freeze the others' own queues must keep their latency; the frozen queues wait for the eviction.
    end_ms = evicted_ms - 500
    before = p99(line for line in others if 2 * frozen_ms - end_ms < line.at_ms <= frozen_ms)
    after = p99(line for line in others if frozen_ms < line.at_ms < end_ms and line.place[0] not in mine)
    moving = p99(line for line in others if end_ms <= line.at_ms < evicted_ms + 1_500)
    later = p99(line for line in others if evicted_ms + 1_500 <= line.at_ms < back_ms)
    deliveries = [line for book in books for line in book]
    duplicates = len(deliveries) - len({line.place for line in deliveries})
    # Messages that it got before the freeze, except in the last moment, whose acknowledgement was on its way.
    settled = {line.place for line in books[0] if line.at_ms < frozen_ms - 500}
    early = sum(1 for line in others if line.place in settled)
    resumed = any(line.at_ms > back_ms for line in books[0])
    faults = [
        text
        for broken, text in (
            (evicted_s > grace_s + 1.5, f"evicted after {evicted_s:.1f} s"),
            (missing > 0, f"{missing} messages are missing"),
            (early > 0, f"{early} acknowledged messages came again"),
            (not resumed, "the consumer got nothing after it resumed"),
            (after > before * 1.2 + 5, f"the others' p99 went from {before} to {after} ms"),
        )
        if broken
    ]
    return SlowReplica(
        rate,
        round(evicted_s, 2),
        grace_s,
        before,
        after,
        moving,
        later,
        sent,
        missing,
        duplicates,
        early,
        resumed,
        faults,
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=5_000)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--grace-s", type=float, default=3.0)
    parser.add_argument("--member", nargs=3)
    arguments = parser.parse_args()
    logs.configure(level="error")
    if arguments.member:
        address, name, out = arguments.member
        asyncio.run(member(address, name, Path(out)))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = slow_replica(Path(folder), rate=arguments.rate, seconds=arguments.seconds, grace_s=arguments.grace_s)
        seen = run_drill(run)
    sys.stdout.write(json.dumps(asdict(seen)) + "\n")
    sys.exit(bool(seen.faults))


if __name__ == "__main__":
    main()

"""Appending while others read: tailing readers on every queue, and one reader that catches up on a backlog."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.report import Figures, main, ratio
from bench.stores import IN_FLIGHT, QUEUES, TOPIC_ID, append_all, open_store, repeated_batches
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.store.store import Store

METHOD = (
    "a store in this process holds a backlog. Producers that keep 16 batches under way append alone, and then beside "
    "readers, in turns. Readers: tailing readers of every queue and one reader of the whole backlog. Medians of the "
    "rounds"
)
TAILS_A_QUEUE = 2
READ_BYTES = 1 << 20
Make = Callable[[int], SealedBatch]


async def measure(options: argparse.Namespace) -> Figures:
    """MB/s appended alone and beside the readers, MB/s of the catch-up reader, and memory."""
    make = repeated_batches(options.body_bytes, options.messages_per_batch)
    batch_bytes = len(make(0).records)
    backlog = int(options.backlog_mb * 1e6 / batch_bytes)
    alone, beside, catch_up = [], [], []
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        async with open_store(Path(folder)) as store:
            await append_all(store, make, range(backlog))
            before_mib = _memory_mib()
            for _ in range(options.rounds):
                alone.append(await _append_for(store, make, options.seconds) * batch_bytes / 1e6)
                rate, read_mb_per_s = await _beside_readers(store, make, options.backlog_mb)
                beside.append(rate * batch_bytes / 1e6)
                catch_up.append(read_mb_per_s)
            after_mib = _memory_mib()
            counters = store.describe().counters
    return {
        "batch_bytes": batch_bytes,
        "backlog_mb": options.backlog_mb,
        "tailing_readers": QUEUES * TAILS_A_QUEUE,
        "mb_per_s": round(median(beside), 1),
        "catch_up_mb_per_s": round(median(catch_up), 1),
        "memory_mib": {"before the readers": before_mib, "at the end": after_mib},
        "batches_from_memory": counters["batches_from_memory"],
        "batches_from_disk": counters["batches_from_disk"],
        "baselines": {"appending alone": {"mb_per_s": round(median(alone), 1)}},
        "ratios": {"append rate beside readers to alone": ratio(median(beside), median(alone))},
        "rounds": [{"alone": round(a, 1), "beside": round(b, 1)} for a, b in zip(alone, beside, strict=True)],
    }


async def _append_for(store: Store, make: Make, seconds: float) -> float:
    """Batches a second."""
    started = time.perf_counter()
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, done.set)
    return await _append_until(store, make, done) / (time.perf_counter() - started)


async def _append_until(store: Store, make: Make, done: asyncio.Event) -> int:
    count = 0

    async def lane() -> None:
        nonlocal count
        while not done.is_set():
            count += 1
            await store.append(TOPIC_ID, count % QUEUES, make(count))

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    return count


async def _beside_readers(store: Store, make: Make, backlog_mb: float) -> tuple[float, float]:
    """Append until the reader has caught up; batches a second appended, MB a second read."""
    ends = [row.end_offset for row in store.describe_queues(TOPIC_ID)]
    caught_up = asyncio.Event()
    read_bytes = 0

    async def tail(queue_id: int) -> None:
        offset = ends[queue_id]
        while True:
            offset = (await store.fetch(TOPIC_ID, queue_id, offset, wait_ms=1000)).next_offset

    async def catch_up() -> None:
        nonlocal read_bytes
        for queue_id in range(QUEUES):
            offset, queue_bytes = 0, 0
            while queue_bytes < backlog_mb * 1e6 / QUEUES:
                fetched = await store.fetch(TOPIC_ID, queue_id, offset, bytes_max=READ_BYTES)
                queue_bytes += sum(len(one.batch.records) for one in fetched.batches)
                offset = fetched.next_offset
            read_bytes += queue_bytes
        caught_up.set()

    started = time.perf_counter()
    tails = [asyncio.create_task(tail(queue_id)) for queue_id in range(QUEUES) for _ in range(TAILS_A_QUEUE)]
    reading = asyncio.create_task(catch_up())
    try:
        appended = await _append_until(store, make, caught_up)
        seconds = time.perf_counter() - started
        await reading
    finally:
        for task in (*tails, reading):
            task.cancel()
        await asyncio.wait(tails)
    return appended / seconds, read_bytes / 1e6 / seconds


def _memory_mib() -> float:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return float("nan")


if __name__ == "__main__":
    main("readers", METHOD, measure, backlog_mb=1000.0, body_bytes=256, messages_per_batch=1000, seconds=4.0, rounds=3)

"""Stores in this process, with production settings, filled with known contents."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.workload import Bodies
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.leadership.services import SWITCH_INTERVAL_S
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.verification.store.single_store import SingleStore, open_single_store

TOPIC_ID = 1
QUEUES = 8
IN_FLIGHT = 16
DISTINCT_BATCHES = 64


@asynccontextmanager
async def open_store(folder: Path, *, disk: Disk | None = None, **settings: Any) -> AsyncIterator[SingleStore]:
    """A store with one topic of 8 queues and unlimited retention; closed at the end."""
    configure(level="error")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    store = await open_single_store(
        folder,
        settings=StoreSettings(retention_age_ms=0, **settings),
        disk=disk or RealDisk(),
        clock=SystemClock(),
        randomness=Randomness(),
    )
    try:
        await store.put_topics([TopicCopy(TOPIC_ID, "bench", QUEUES, 1)])
        yield store
    finally:
        await store.close()


def repeated_batches(body_bytes: int, messages_per_batch: int) -> Callable[[int], SealedBatch]:
    """Batches by number; the contents repeat, so that making them costs nothing."""
    bodies = Bodies(body_bytes)
    made = [encode(bodies.take(messages_per_batch), now_ms=1) for _ in range(DISTINCT_BATCHES)]
    return lambda number: made[number % DISTINCT_BATCHES]


async def append_all(store: SingleStore, make: Callable[[int], SealedBatch], batches: range) -> None:
    """Append the batches with these numbers, in turn to all queues, several at a time."""
    numbers = iter(batches)

    async def lane() -> None:
        for number in numbers:
            await store.append(TOPIC_ID, number % QUEUES, make(number))

    async with asyncio.TaskGroup() as lanes:
        for _ in range(IN_FLIGHT):
            lanes.create_task(lane())

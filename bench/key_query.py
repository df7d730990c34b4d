"""The cost of the index of keys and message ids, and its query latency."""

import argparse
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from bench.percentiles import latency_figures
from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.stores import TOPIC_ID, append_all, open_store
from bench.traffic import make_topic
from bench.workload import Bodies
from ortoo.client import Message, Producer, connect
from ortoo.common.records.batch import encode
from ortoo.common.records.sealed_batch import SealedBatch

METHOD = (
    "cost: one producer sends messages with a key each through two clusters in turn, one whose enode keeps the index "
    "and one whose does not. Medians of the rounds. Queries: a store holds messages with a key and an id of their "
    "own. Random ones are looked up, one after another"
)
BATCH_MESSAGES = 1000
CHUNK_MESSAGES = 8_000


async def measure(options: argparse.Namespace) -> Figures:
    """The cost as a ratio, then the queries."""
    without, with_index = await _produce_rates(options)
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        queries = await _queries(Path(folder), options)
    return {
        **queries,
        "messages_per_s": round(median(with_index)),
        "baselines": {"without the index": {"messages_per_s": round(median(without)), "rounds": without}},
        "rounds": with_index,
        "ratios": {"messages_per_s with the index to without": ratio(median(with_index), median(without))},
    }


async def _produce_rates(options: argparse.Namespace) -> tuple[list[int], list[int]]:
    """Messages a second of each round, without and with the index."""
    rates: tuple[list[int], list[int]] = ([], [])
    async with AsyncExitStack() as stack:
        producers = [await stack.enter_async_context(_producer(setting)) for setting in ("false", "true")]
        numbers = iter(range(1 << 62))
        for producer in producers:
            await _produce_for(producer, numbers, options.body_bytes, 1.0)
        for number in range(options.rounds * 2):
            which = (number + number // 2) % 2
            rates[which].append(await _produce_for(producers[which], numbers, options.body_bytes, options.seconds))
    return rates


@asynccontextmanager
async def _producer(key_index: str) -> AsyncIterator[Producer]:
    async with cluster(STORE_KEY_INDEX=key_index) as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with mq.producer("bench") as producer:
            yield producer


async def _produce_for(producer: Producer, numbers: Iterator[int], body_bytes: int, seconds: float) -> int:
    bodies, sent = Bodies(body_bytes), 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        messages = [Message(body, keys=(f"order-{next(numbers)}",)) for body in bodies.take(CHUNK_MESSAGES)]
        await producer.send_many(messages)
        sent += len(messages)
    await producer.flush()
    return round(sent / (time.perf_counter() - started))


async def _queries(folder: Path, options: argparse.Namespace) -> Figures:
    bodies = Bodies(options.body_bytes)

    def make(number: int) -> SealedBatch:
        rows = range(number * BATCH_MESSAGES, (number + 1) * BATCH_MESSAGES)
        made = zip(bodies.take(BATCH_MESSAGES), rows, strict=True)
        return encode([Message(body, keys=(f"order-{row}",), message_id=f"id-{row}") for body, row in made], now_ms=1)

    chance = random.Random(1)
    async with open_store(folder) as store:
        await append_all(store, make, range(options.messages // BATCH_MESSAGES))
        started = time.perf_counter()
        await store.find_messages(TOPIC_ID, key="order-0")
        caught_up_s = time.perf_counter() - started

        async def by_key(row: int) -> int:
            return len(await store.find_messages(TOPIC_ID, key=f"order-{row}"))

        async def by_id(row: int) -> int:
            return len(await store.find_messages(TOPIC_ID, message_id=f"id-{row}"))

        rows = [chance.randrange(options.messages) for _ in range(options.queries)]
        key_s = await _timed(by_key, rows, 1)
        id_s = await _timed(by_id, rows, 1)
        none_s = await _timed(by_key, [row + options.messages for row in rows], 0)
        log_bytes = store.describe().log_bytes
    return {
        "messages": options.messages,
        "log_gb": round(log_bytes / 1e9, 2),
        "first_query_after_the_load_s": round(caught_up_s, 3),
        "by_key": latency_figures(key_s),
        "by_id": latency_figures(id_s),
        "not_there": latency_figures(none_s),
    }


async def _timed(find: Callable[[int], Awaitable[int]], rows: list[int], expected: int) -> list[float]:
    durations = []
    for row in rows:
        started = time.perf_counter()
        found = await find(row)
        durations.append(time.perf_counter() - started)
        assert found == expected, (row, found)
    return durations


if __name__ == "__main__":
    main("key_query", METHOD, measure, messages=10_000_000, body_bytes=256, queries=1000, rounds=5, seconds=3.0)

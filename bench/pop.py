"""Popping and acknowledging in batches of 32, against plain pull of the same messages."""

import argparse
import asyncio
import time

from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic
from ortoo.client import Client, PopConsumer, PopSettings, connect

METHOD = (
    "one topic of 4 queues is read whole through the snode (plain pull), then popped and acknowledged durably by "
    "workers of one process, in batches of 32 and of 512, each worker with one pop or acknowledgement under way at a "
    "time; messages a second, all in one run on one cluster"
)
WORKERS = 8


async def measure(options: argparse.Namespace) -> Figures:
    """Messages a second."""
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 4)
        async with mq.producer("bench") as producer:
            body = bytes(options.body_bytes)
            for start in range(0, options.messages, 4096):
                await producer.send_many([body] * min(4096, options.messages - start))
        plain = max([await _read(mq) for _ in range(3)])
        rates = {str(size): await _popped(mq, f"by-{size}", size, options.messages) for size in (32, 512)}
    return {
        "messages": options.messages,
        "workers": WORKERS,
        "messages_per_s": {f"pop and ack by {size}": round(rate) for size, rate in rates.items()},
        "baselines": {"plain pull": {"messages_per_s": round(plain)}},
        "ratios": {f"pop and ack by {size} to plain pull": ratio(rate, plain) for size, rate in rates.items()},
    }


async def _read(mq: Client) -> float:
    description = await mq.admin.describe_topic("bench")
    started = time.perf_counter()

    async def one(at: int) -> int:
        item = description.queues[at]
        return sum([len(batch) async for batch in mq.fetch(item.queue, item.begin_offset)])

    count = sum(await asyncio.gather(*map(one, range(len(description.queues)))))
    return count / (time.perf_counter() - started)


async def _popped(mq: Client, group: str, size: int, messages: int) -> float:
    left = messages
    started = time.perf_counter()
    async with mq.pop_consumer(group, "bench", settings=PopSettings(messages_max=size)) as consumer:

        async def work() -> None:
            nonlocal left
            while left > 0:
                count = await _pop_and_acknowledge(consumer)
                left -= count

        await asyncio.gather(*[work() for _ in range(WORKERS)])
    return messages / (time.perf_counter() - started)


async def _pop_and_acknowledge(consumer: PopConsumer) -> int:
    popped = await consumer.pop(wait_ms=200)
    for lease in {id(one.lease): one.lease for one in popped}.values():
        await consumer.ack(lease, sorted(lease.open_offsets))
    return len(popped)


if __name__ == "__main__":
    main("pop", METHOD, measure, messages=60_000, body_bytes=256)

"""Popping and acknowledging in batches of 32, against plain pull of the same messages."""

import argparse
import asyncio
import time
from contextlib import AsyncExitStack

from bench.processes import cluster, cpu_us_per_message
from bench.report import Figures, main, ratio
from bench.traffic import make_topic
from ortoo.client import Client, PopConsumer, PopSettings, connect

METHOD = (
    "one topic of 4 queues is read whole through the snode (plain pull), then popped and acknowledged durably, in "
    "batches of 32 and of 512. Workers share one consumer or 8 with connections of their own, each worker with one "
    "pop or acknowledgement under way at a time. Messages a second and processor microseconds a message, all in one "
    "run on one cluster"
)
CASES = ((32, 8, 1), (32, 8, 8), (32, 64, 1), (32, 64, 8), (512, 8, 1))
"""(messages of a batch, workers, consumers that the workers share)."""


async def measure(options: argparse.Namespace) -> Figures:
    """Messages a second."""
    rates: dict[str, float] = {}
    cpu_us: dict[str, dict[str, float]] = {}
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 4)
        async with mq.producer("bench") as producer:
            body = bytes(options.body_bytes)
            for start in range(0, options.messages, 4096):
                await producer.send_many([body] * min(4096, options.messages - start))
            await producer.flush()
        plain = max([await _read(mq) for _ in range(5)])
        for size, workers, consumers in CASES:
            name = f"by {size}, {workers} workers, {consumers} consumers"
            before = roles.cpu_s()
            group = name.replace(", ", "-").replace(" ", "-")
            rates[name] = await _popped(roles.address, group, size, workers, consumers, options.messages)
            cpu_us[name] = cpu_us_per_message(before, roles.cpu_s(), options.messages)
    return {
        "messages": options.messages,
        "messages_per_s": {f"pop and ack {name}": round(rate) for name, rate in rates.items()},
        "cpu_us_per_message": cpu_us,
        "baselines": {"plain pull": {"messages_per_s": round(plain)}},
        "ratios": {f"pop and ack {name} to plain pull": ratio(rate, plain) for name, rate in rates.items()},
    }


async def _read(mq: Client) -> float:
    description = await mq.admin.describe_topic("bench")
    started = time.perf_counter()

    async def one(at: int) -> int:
        item = description.queues[at]
        return sum([len(batch) async for batch in mq.fetch(item.queue, item.begin_offset)])

    count = sum(await asyncio.gather(*map(one, range(len(description.queues)))))
    return count / (time.perf_counter() - started)


async def _popped(address: str, group: str, size: int, workers: int, consumers: int, messages: int) -> float:
    left, started, ended = messages, 0.0, 0.0
    async with AsyncExitStack() as stack:
        opened: list[PopConsumer] = []
        for _ in range(consumers):
            mq = await stack.enter_async_context(connect(address))
            settings = PopSettings(messages_max=size)
            opened.append(await stack.enter_async_context(mq.pop_consumer(group, "bench", settings=settings)))

        async def work(consumer: PopConsumer) -> None:
            nonlocal left, ended
            while left > 0:
                count = await _pop_and_acknowledge(consumer)
                left -= count
                if count:
                    ended = time.perf_counter()  # the rest is waiting for more

        started = time.perf_counter()
        await asyncio.gather(*[work(opened[number % consumers]) for number in range(workers)])
        return messages / (ended - started)


async def _pop_and_acknowledge(consumer: PopConsumer) -> int:
    popped = await consumer.pop(wait_ms=200)
    for lease in {id(one.lease): one.lease for one in popped}.values():
        await consumer.ack(lease, sorted(lease.open_offsets))
    return len(popped)


if __name__ == "__main__":
    main("pop", METHOD, measure, messages=120_000, body_bytes=256)

"""The latency of one message at a steady rate, from the planned send to the handler."""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import cast

from bench.baselines import grpc_hops
from bench.percentiles import latency_figures
from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic, ticks
from ortoo.client import Client, Consumer, ConsumerSettings, Message, connect

METHOD = (
    "an open loop sends single messages at a fixed rate, 4 queues, fdatasync before each acknowledgement. Delays "
    "count from the planned send time, so stalls are not hidden (no coordinated omission). Push = until the consumer,"
    " which has a connection of its own, has it. The first second is not counted"
)
WARM_UP_S = 1.0
Send = Callable[[], Awaitable[object]]


async def measure(options: argparse.Namespace) -> Figures:
    """Acknowledgement and push delays at the same rate, and those of an empty proxy."""
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "acks", 4)
        await make_topic(roles.address, "pushes", 4)
        async with mq.producer("acks") as producer:
            message = Message(bytes(options.body_bytes))
            acks = await _answered(lambda: producer.send(message), options)
        pushes = await _pushed(mq, roles.address, options)
    body = bytes(options.body_bytes)
    async with grpc_hops.hops() as channel:
        empty = cast("Callable[[bytes], Awaitable[bytes]]", channel.unary_unary("/bench.Hops/Call"))
        proxy = latency_figures(await _answered(lambda: empty(body), options))
    push, ack = latency_figures(pushes), latency_figures(acks)
    return {
        "messages_per_s": options.rate,
        "body_bytes": options.body_bytes,
        "messages": len(pushes),
        **push,
        "push": push,
        "ack": ack,
        "baselines": {"empty grpc.aio proxy, unary in, stream out": proxy},
        "ratios": {
            "p50 of the empty proxy's answer to p50 of push": ratio(proxy["p50_ms"], push["p50_ms"]),
            "p50 of the empty proxy's answer to p50 of ack": ratio(proxy["p50_ms"], ack["p50_ms"]),
        },
    }


async def _answered(send: Send, options: argparse.Namespace) -> list[float]:
    """Seconds from each planned send to its answer, the warm-up left out."""
    delays: list[float] = []
    warm_up = int(WARM_UP_S * options.rate)

    async def one(planned: float) -> None:
        await send()
        delays.append(time.perf_counter() - planned)

    async with asyncio.TaskGroup() as group:
        async for planned in ticks(options.rate, warm_up + int(options.rate * options.seconds / 2)):
            group.create_task(one(planned))
    return delays[warm_up:]


async def _pushed(mq: Client, address: str, options: argparse.Namespace) -> list[float]:
    """Seconds from planned send to arrival, counted from the first delivery to the consumer."""
    delays: list[float] = []
    warm_up = int(WARM_UP_S * options.rate)
    total = warm_up + int(options.rate * options.seconds)
    padding = bytes(options.body_bytes - 8)
    flowing = asyncio.Event()

    async def collect(consumer: Consumer) -> None:
        async for batch in consumer.batches():
            now_ns = time.perf_counter_ns()
            if flowing.is_set():
                delays.extend((now_ns - int.from_bytes(body[:8], "little")) / 1e9 for body in batch.bodies())
            batch.ack()
            flowing.set()
            if len(delays) >= total:
                return

    async with (
        connect(address) as other,
        mq.producer("pushes") as producer,
        other.consumer("bench", "pushes", ConsumerSettings(from_beginning=True)) as consumer,
    ):
        collecting = asyncio.get_running_loop().create_task(collect(consumer))
        await producer.send(b"is anybody there?")
        await flowing.wait()
        async for planned in ticks(options.rate, total):
            producer.enqueue_nowait(Message(int(planned * 1e9).to_bytes(8, "little") + padding))
        await collecting
    return delays[warm_up:]


if __name__ == "__main__":
    main("latency", METHOD, measure, rate=1000.0, body_bytes=256, seconds=10.0)

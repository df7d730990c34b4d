"""How long one message takes at a steady rate, from the planned send to the handler."""

import argparse
import asyncio
import time

from bench.percentiles import latency_figures
from bench.processes import cluster
from bench.report import Figures, main
from bench.traffic import make_topic, send_probes
from ortoo.client import Consumer, ConsumerSettings, Message, connect

METHOD = (
    "an open loop sends single messages at a fixed rate, 4 queues, fdatasync before each acknowledgement; delays count "
    "from the planned send time, so stalls are not hidden (no coordinated omission); push = until the consumer has it"
)


async def measure(options: argparse.Namespace) -> Figures:
    """Acknowledgement and push delays at the same rate."""
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "acks", 4)
        await make_topic(roles.address, "pushes", 4)
        await send_probes(mq, "acks", options.body_bytes, options.rate, 1.0)
        acks = await send_probes(mq, "acks", options.body_bytes, options.rate, options.seconds / 2)
        pushes = await _pushed(roles.address, options)
    return {
        "messages_per_s": options.rate,
        "body_bytes": options.body_bytes,
        "messages": len(pushes),
        "push": latency_figures(pushes),
        "ack": latency_figures(acks),
        **latency_figures(pushes),
    }


async def _pushed(address: str, options: argparse.Namespace) -> list[float]:
    """Seconds from planned send to arrival at a consumer with a connection of its own."""
    delays: list[float] = []
    total = int(options.rate * options.seconds)
    padding = bytes(options.body_bytes - 8)

    async def collect(consumer: Consumer) -> None:
        async for batch in consumer.batches():
            now_ns = time.perf_counter_ns()
            delays.extend((now_ns - int.from_bytes(body[:8], "little")) / 1e9 for body in batch.bodies())
            batch.ack()
            if len(delays) >= total:
                return

    async with (
        connect(address) as other,
        connect(address) as mq,
        mq.producer("pushes") as producer,
        other.consumer("bench", "pushes", ConsumerSettings(from_first=True)) as consumer,
    ):
        collecting = asyncio.get_running_loop().create_task(collect(consumer))
        started_ns = time.perf_counter_ns()
        for number in range(total):
            planned_ns = started_ns + int(number * 1e9 / options.rate)
            if (wait_s := (planned_ns - time.perf_counter_ns()) / 1e9) > 0:
                await asyncio.sleep(wait_s)
            producer.send_soon(Message(planned_ns.to_bytes(8, "little") + padding))
        await collecting
    return delays


if __name__ == "__main__":
    main("latency", METHOD, measure, rate=1000.0, body_bytes=256, seconds=10.0)

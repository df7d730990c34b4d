"""Producing while a reader drains a backlog, against producing alone."""

import argparse
import asyncio
import time

from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import consuming, make_topic, produce_for
from ortoo.client import connect

METHOD = (
    "a backlog is produced; then the producer's rate is measured alone and beside one consumer that drains the "
    "backlog from the first message. Both rates come from one run on one cluster"
)


async def measure(options: argparse.Namespace) -> Figures:
    """The producer's rate without and with the reader, and the reader's rate."""
    backlog = int(options.backlog_mb * 1e6 / options.body_bytes)
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with mq.producer("bench") as producer:
            stored = await produce_for(producer, options.body_bytes, 600.0, messages_max=backlog)
            alone = await produce_for(producer, options.body_bytes, options.seconds)
            async with consuming(roles.address, "late", "bench", verify=False) as received:
                started = time.perf_counter()
                producing = asyncio.get_running_loop().create_task(
                    produce_for(producer, options.body_bytes, options.seconds)
                )
                await received.reach(backlog)
                drain_s = time.perf_counter() - started
                beside = await producing
                gaps = received.gaps
        memory = roles.memory_mib()
    return {
        "backlog_messages": stored.messages,
        "backlog_mb": options.backlog_mb,
        "messages_per_s": round(beside.messages_per_s),
        "drain_messages_per_s": round(backlog / drain_s),
        "gaps": gaps,
        "memory_mib": memory,
        "baselines": {"producing alone": alone.figures()},
        "ratios": {"produce rate beside the reader to alone": ratio(beside.messages_per_s, alone.messages_per_s)},
    }


if __name__ == "__main__":
    main("catch_up", METHOD, measure, backlog_mb=1000.0, body_bytes=256, seconds=6.0)

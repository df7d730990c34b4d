"""Whether a long log costs anything: producing into an empty store and into one that holds many messages."""

import argparse

from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic, produce_for
from ortoo.client import connect

METHOD = "one producer fills one topic; its rate over the first messages against its rate at the end, on one cluster"


async def measure(options: argparse.Namespace) -> Figures:
    """The rate near 10,000 messages, and after the log has grown."""
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with mq.producer("bench") as producer:
            await produce_for(producer, options.body_bytes, 60.0, messages_max=10_000)
            short = await produce_for(producer, options.body_bytes, options.seconds)
            grown = await produce_for(producer, options.body_bytes, 600.0, messages_max=options.messages)
            long = await produce_for(producer, options.body_bytes, options.seconds)
        memory = roles.memory_mib()
    return {
        "stored_messages": short.messages + grown.messages + 10_000,
        "messages_per_s": round(long.messages_per_s),
        "memory_mib": memory,
        "baselines": {"short log": short.figures()},
        "ratios": {"messages_per_s to a short log": ratio(long.messages_per_s, short.messages_per_s)},
    }


if __name__ == "__main__":
    main("scale_log", METHOD, measure, messages=10_000_000, body_bytes=256, seconds=4.0)

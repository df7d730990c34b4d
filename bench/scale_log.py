"""The effect of log length: producing into an empty store and into one that holds many messages."""

import argparse

from bench.processes import Cluster, cluster, cpu_us_per_message
from bench.report import Figures, main, ratio
from bench.traffic import Sent, make_topic, produce_for
from ortoo.client import Producer, connect

METHOD = (
    "one producer fills one topic. Then its rate is measured in turns with that of a producer on a fresh cluster that"
    " holds 10,000 messages. The best of two turns each, and the processor time a message"
)
SHORT_MESSAGES = 10_000
TURNS = 2
Turn = tuple[Sent, dict[str, float]]


async def measure(options: argparse.Namespace) -> Figures:
    """The rate with a long log, and in turns with it the rate with a short one."""
    long_turns: list[Turn] = []
    short_turns: list[Turn] = []
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with mq.producer("bench") as producer:
            grown = await produce_for(producer, options.body_bytes, 600.0, messages_max=options.messages)
            for _ in range(TURNS):
                long_turns.append(await _turn(roles, producer, options))
                short_turns.append(await _short(options))
        memory = roles.memory_mib()
    (long, long_cpu), (short, short_cpu) = (
        max(turns, key=lambda turn: turn[0].messages_per_s) for turns in (long_turns, short_turns)
    )
    return {
        "stored_messages": grown.messages,
        "messages_per_s": round(long.messages_per_s),
        "cpu_us_per_message": long_cpu,
        "memory_mib": memory,
        "baselines": {"short log": {**short.figures(), "cpu_us_per_message": short_cpu}},
        "ratios": {
            "messages_per_s to a short log": ratio(long.messages_per_s, short.messages_per_s),
            "processor time of a short log to ours": ratio(sum(short_cpu.values()), sum(long_cpu.values())),
        },
    }


async def _turn(roles: Cluster, producer: Producer, options: argparse.Namespace) -> Turn:
    before = roles.cpu_s()
    sent = await produce_for(producer, options.body_bytes, options.seconds)
    return sent, cpu_us_per_message(before, roles.cpu_s(), sent.messages)


async def _short(options: argparse.Namespace) -> Turn:
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with mq.producer("bench") as producer:
            await produce_for(producer, options.body_bytes, 60.0, messages_max=SHORT_MESSAGES)
            return await _turn(roles, producer, options)


if __name__ == "__main__":
    main("scale_log", METHOD, measure, messages=10_000_000, body_bytes=256, seconds=3.0)

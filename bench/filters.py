"""Reading a topic through filters that select one message in a hundred, against reading it whole."""

import argparse
import asyncio
import time

from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic
from ortoo.client import Client, Filter, Message, Sql, connect

METHOD = (
    "one topic with tags and properties is read from first to last message through the snode: whole, by a tag, by SQL"
    " conditions. Each rate is of messages examined; best of three, all in one run on one cluster"
)
FILTERS: dict[str, Filter] = {
    "tag": "tag-7",
    "sql text": Sql("region = 'region-7'"),
    "sql number": Sql("amount >= 7000 AND amount < 7100"),
    "sql tag and text": Sql("TAGS IN ('tag-7', 'tag-8') AND region LIKE 'region-7%' AND region <> 'region-77'"),
}


async def measure(options: argparse.Namespace) -> Figures:
    """Messages examined a second, plain and through each filter."""
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 4)
        async with mq.producer("bench") as producer:
            body = bytes(options.body_bytes)
            for start in range(0, options.messages, 4096):
                await producer.send_many([_message(number, body) for number in range(start, start + 4096)])
                await producer.flush()
        plain, selected = 0.0, 0
        rates: dict[str, float] = dict.fromkeys(FILTERS, 0.0)
        found: dict[str, int] = {}
        for _ in range(3):
            plain = max(plain, (await _read(mq, "*"))[0])
            for name, wanted in FILTERS.items():
                rate, selected = await _read(mq, wanted)
                rates[name], found[name] = max(rates[name], rate), selected
    return {
        "messages": options.messages,
        "messages_per_s": {name: round(rate) for name, rate in rates.items()},
        "selected": found,
        "baselines": {"plain pull": {"messages_per_s": round(plain)}},
        "ratios": {f"{name} to plain pull": ratio(rate, plain) for name, rate in rates.items()},
    }


def _message(number: int, body: bytes) -> Message:
    spread = number * 7919 % 10_000
    properties = {"region": f"region-{spread // 100}", "amount": str(spread), "channel": "web"}
    return Message(body, f"tag-{spread // 100}", properties=properties)


async def _read(mq: Client, wanted: Filter) -> tuple[float, int]:
    description = await mq.admin.describe_topic("bench")
    started, selected = time.perf_counter(), 0

    async def one(at: int) -> int:
        item = description.queues[at]
        return sum([len(batch) async for batch in mq.fetch(item.queue, item.begin_offset, filter=wanted)])

    selected = sum(await asyncio.gather(*map(one, range(len(description.queues)))))
    looked_at = sum(item.end_offset - item.begin_offset for item in description.queues)
    return looked_at / (time.perf_counter() - started), selected


if __name__ == "__main__":
    main("filters", METHOD, measure, messages=409_600, body_bytes=256)

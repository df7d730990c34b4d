"""The effect of the number of queues: unkeyed producing over 8 and over many queues."""

import argparse

from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic, produce_for
from ortoo.client import connect

METHOD = (
    "one producer without keys on a topic of 8 queues, then on one producer a topic over topics with all the queues "
    "together. The two alternate on one cluster"
)
QUEUES_A_TOPIC = 1_000


async def measure(options: argparse.Namespace) -> Figures:
    """Few and many in turn, twice each; the better of each."""
    topics = max(1, options.queues // QUEUES_A_TOPIC)
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "few", 8)
        for number in range(topics):
            await make_topic(roles.address, f"many-{number}", min(options.queues, QUEUES_A_TOPIC))
        few, many = [], []
        async with mq.producer("few") as producer:
            await produce_for(producer, options.body_bytes, 1.0)
            for round_number in range(2):
                few.append(await produce_for(producer, options.body_bytes, options.seconds))
                async with mq.producer(f"many-{round_number % topics}") as other:
                    many.append(await produce_for(other, options.body_bytes, options.seconds))
        memory = roles.memory_mib()
    best_few = max(sent.messages_per_s for sent in few)
    best_many = max(sent.messages_per_s for sent in many)
    return {
        "queues": options.queues,
        "messages_per_s": round(best_many),
        "memory_mib": memory,
        "baselines": {"8 queues": {"messages_per_s": round(best_few)}},
        "ratios": {"messages_per_s to 8 queues": ratio(best_many, best_few)},
    }


if __name__ == "__main__":
    main("scale_queues", METHOD, measure, queues=8000, body_bytes=256, seconds=4.0)

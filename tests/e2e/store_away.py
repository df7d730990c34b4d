"""The shared membership store is down for a while: consumers continue, no queue has two owners, membership recovers.

python -m tests.e2e.store_away --away 20
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ortoo.client import Client, connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import consumer_pb2_grpc, pull_pb2
from tests.e2e.consumer_cluster import Books, ConsumerCluster, consumer_cluster, ends_of, members, settled, until
from tests.e2e.drill import run_drill

TOPIC, GROUP = "flow", "workers"
QUEUES, MEMBERS = 16, 4
FLOWING = 1_000
"""Number of messages that prove that messages flow."""


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The results."""

    away_s: float
    received_before: int
    received_while_away: int
    healed_after_s: float
    settled_after_s: float
    missing: int
    duplicates: int
    """Deliveries to a second owner: no consumer died, so there may only be those in flight when queues moved."""

    @property
    def faults(self) -> list[str]:
        """The broken guarantees."""
        return [
            text
            for broken, text in (
                (self.missing > 0, f"{self.missing} messages are missing"),
                (self.received_while_away == 0, "nothing came while the store was away"),
                (self.healed_after_s > 10, f"membership took {self.healed_after_s} s to recover"),
            )
            if broken
        ]


async def members_seen(running: ConsumerCluster, channels: Channels) -> list[list[str]]:
    """The group members as each snode sees them."""
    seen = []
    for address in running.addresses:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channels.channel_to(address))
        answer = await stub.QueryMembers(pull_pb2.QueryMembersRequest(group=GROUP))
        seen.append(list(answer.client_ids))
    return seen


async def produce(mq: Client, stop: asyncio.Event) -> None:
    """Send at a moderate rate."""
    clock = SystemClock()
    async with mq.producer(TOPIC) as producer:
        while not stop.is_set():
            await producer.send_many([b"x" * 64 for _ in range(50)])
            await clock.sleep(0.05)


async def store_away(folder: Path, *, away_s: float) -> StoreAway:
    """Run it: two group members at each snode, one more joins while the store is down."""
    clock, books, stop = SystemClock(), Books(), asyncio.Event()
    async with (
        consumer_cluster(folder) as running,
        connect(running.addresses) as mq,
        Channels() as channels,
        Background("run") as background,
    ):
        first, second = running.addresses
        await mq.admin.create_topic(TOPIC, queue_count=QUEUES)
        async with (
            members([first], GROUP, TOPIC, MEMBERS // 2, books, prefix="first") as here,
            members([second], GROUP, TOPIC, MEMBERS // 2, books, prefix="second") as there,
        ):
            await until(lambda: settled([*here, *there], QUEUES), 60)
            producing = background.spawn("produce", produce(mq, stop))
            await until(lambda: len(books.received) > FLOWING, 60)
            before = len(books.received)
            await running.store.stop()
            await clock.sleep(away_s / 2)
            async with members([second], GROUP, TOPIC, 1, books, prefix="late") as late:
                await clock.sleep(away_s / 2)
                meanwhile = len(books.received) - before
                await running.store.start()
                began_s = clock.monotonic_s()
                async with asyncio.timeout(60):
                    while [len(one) for one in await members_seen(running, channels)] != [MEMBERS + 1] * 2:
                        await clock.sleep(0.05)
                healed_s = clock.monotonic_s() - began_s
                settled_s = await until(lambda: settled([*here, *there, *late], QUEUES), 60)
                flown = len(books.received)
                await until(lambda: len(books.received) > flown + FLOWING, 60)
                stop.set()
                await producing
                ends = await ends_of(mq, TOPIC)
                await until(lambda: books.missing(ends) == 0 or clock.monotonic_s() - books.last_at_s > 10, 60)
    return StoreAway(
        away_s, before, meanwhile, round(healed_s, 2), round(settled_s, 2), books.missing(ends), books.duplicates
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--away", type=float, default=20)
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        seen = run_drill(store_away(Path(folder), away_s=arguments.away))
    sys.stdout.write(json.dumps({**asdict(seen), "faults": seen.faults}) + "\n")
    sys.exit(bool(seen.faults))


if __name__ == "__main__":
    main()

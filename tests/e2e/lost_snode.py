"""Kill a snode with many consumers: they move to the other one, each queue soon has one owner, nothing is lost.

python -m tests.e2e.lost_snode --members 50
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ortoo.client import connect
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from tests.e2e.consumer_cluster import Books, consumer_cluster, ends_of, members, settled, until
from tests.e2e.drill import run_drill

TOPIC, GROUP = "flow", "workers"
QUEUES = 64
SETTLE_S = 5.0
FLOWING = 2_000
"""Number of messages that prove that messages flow."""


@dataclass(frozen=True, slots=True)
class LostSnode:
    """The results."""

    members: int
    first_settled_s: float
    settled_after_kill_s: float
    sent: int
    missing: int
    duplicates: int
    lost_offsets: int

    @property
    def faults(self) -> list[str]:
        """The broken guarantees."""
        return [
            text
            for broken, text in (
                (self.settled_after_kill_s > SETTLE_S, f"ownership took {self.settled_after_kill_s:.1f} s to settle"),
                (self.missing > 0, f"{self.missing} messages were lost"),
                (self.lost_offsets > 0, f"{self.lost_offsets} committed offsets went back"),
            )
            if broken
        ]


async def lose_snode(folder: Path, *, count: int) -> LostSnode:
    """Run it."""
    clock = SystemClock()
    async with consumer_cluster(folder) as running, connect([running.addresses[1]]) as other:
        await other.admin.create_topic(TOPIC, queue_count=QUEUES)
        books, sent = Books(), 0
        # The first address is that of the snode to be killed; producers use the other one.
        async with members(running.addresses, GROUP, TOPIC, count, books) as found:
            first_s = await until(lambda: settled(found, QUEUES), 60)
            stop = asyncio.Event()

            async def produce() -> None:
                nonlocal sent
                async with other.producer(TOPIC) as producer:
                    while not stop.is_set():
                        await producer.send_many([b"x" * 64 for _ in range(200)])
                        sent += 200
                        await clock.sleep(0.05)

            async with Background("run") as background:
                producing = background.spawn("produce", produce())
                await until(lambda: len(books.received) > FLOWING, 60)
                before = {
                    one.queue: one.committed_offset for one in (await other.admin.describe_lag(GROUP, TOPIC)).queues
                }
                await running.cluster.snodes[0].kill()
                await until(lambda: not settled(found, QUEUES), 5)
                took_s = await until(lambda: settled(found, QUEUES), 60)
                after = {
                    one.queue: one.committed_offset for one in (await other.admin.describe_lag(GROUP, TOPIC)).queues
                }
                flown = len(books.received)
                await until(lambda: len(books.received) > flown + FLOWING, 60)
                stop.set()
                await producing
            ends = await ends_of(other, TOPIC)
            await until(lambda: books.missing(ends) == 0 or clock.monotonic_s() - books.last_at_s > 10, 60)
        lost = sum(after[queue] < before[queue] for queue in before)
        return LostSnode(count, round(first_s, 2), round(took_s, 2), sent, books.missing(ends), books.duplicates, lost)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=50)
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        seen = run_drill(lose_snode(Path(folder), count=arguments.members))
    sys.stdout.write(json.dumps({**asdict(seen), "faults": seen.faults}) + "\n")
    sys.exit(bool(seen.faults))


if __name__ == "__main__":
    main()

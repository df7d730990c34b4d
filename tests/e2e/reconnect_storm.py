"""Two hundred clients join and leave over two snodes; in the end every queue has one owner and nothing is missing.

python -m tests.e2e.reconnect_storm --clients 200 --seconds 30
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ortoo.client import connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.snode.membership.store import COMPARE_INTERVAL_S
from tests.e2e.consumer_cluster import Books, Member, consumer_cluster, ends_of, settled, until
from tests.e2e.drill import run_drill
from tests.e2e.store_away import members_seen, produce

TOPIC, GROUP = "flow", "workers"
QUEUES = 32
MEMBERS_AGREE_S = COMPARE_INTERVAL_S + 10
"""A snode that missed a change of the members sees it when it compares the version of the group."""


@dataclass(frozen=True, slots=True)
class MemberStorm:
    """The results."""

    clients: int
    joins: int
    left: int
    settled_after_s: float
    members: list[list[str]]
    """The group members according to each snode, when they agreed or the wait ended."""
    remaining: list[str]
    """The clients that stay to the end."""
    missing: int
    duplicates: int

    @property
    def faults(self) -> list[str]:
        """The broken guarantees."""
        return [
            text
            for broken, text in (
                (self.missing > 0, f"{self.missing} messages are missing"),
                (
                    any(seen != self.remaining for seen in self.members),
                    f"the snodes see the group members {self.members}; expected {self.remaining}",
                ),
            )
            if broken
        ]


async def reconnect_storm(folder: Path, *, clients: int, seconds: float, seed: int = 1) -> MemberStorm:
    """Run it: every client joins, stays for a random time and leaves, again and again. In the end a few stay."""
    clock, chance, books, stop = SystemClock(), Randomness(seed), Books(), asyncio.Event()
    staying: list[Member] = []
    joins = 0
    async with (
        consumer_cluster(folder) as running,
        contextlib.AsyncExitStack() as parts,
        Channels() as channels,
    ):
        at_each = [await parts.enter_async_context(connect([address])) for address in running.addresses]
        mq = await parts.enter_async_context(connect(running.addresses))
        await mq.admin.create_topic(TOPIC, queue_count=QUEUES)
        background = await parts.enter_async_context(Background("storm"))
        end_s = clock.monotonic_s() + seconds

        async def come_and_go(number: int) -> None:
            nonlocal joins
            await clock.sleep(chance.uniform(0, seconds / 4))
            while True:
                joins += 1
                member = Member(at_each[chance.below(2)], GROUP, TOPIC, books, f"c{number:03}")
                stays = clock.monotonic_s() > end_s and number % 20 == 0
                if stays:
                    staying.append(member)
                consuming = background.spawn("member", member.run())
                if stays:
                    return
                await clock.sleep(chance.uniform(0.5, seconds / 4))
                consuming.cancel()
                await asyncio.wait([consuming])
                if clock.monotonic_s() > end_s and number % 20:
                    return

        producing = background.spawn("produce", produce(mq, stop))
        coming = [background.spawn("client", come_and_go(number)) for number in range(clients)]
        await asyncio.wait(coming)
        settled_s = await until(lambda: settled(staying, QUEUES), 90)
        stop.set()
        await producing
        ends = await ends_of(mq, TOPIC)
        await until(lambda: books.missing(ends) == 0 or clock.monotonic_s() - books.last_at_s > 10, 90)
        names = [f"c{number:03}" for number in range(0, clients, 20)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MEMBERS_AGREE_S):
                while (members := await members_seen(running, channels)) != [names, names]:
                    await clock.sleep(0.05)
        return MemberStorm(
            clients,
            joins,
            joins - len(staying),
            round(settled_s, 2),
            members,
            names,
            books.missing(ends),
            books.duplicates,
        )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        seen = run_drill(reconnect_storm(Path(folder), clients=arguments.clients, seconds=arguments.seconds))
    sys.stdout.write(json.dumps({**asdict(seen), "faults": seen.faults}) + "\n")
    sys.exit(bool(seen.faults))


if __name__ == "__main__":
    main()

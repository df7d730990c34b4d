"""The store of memberships loses its data, or returns to an older state: with real processes and a real Valkey."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ortoo.client import Message, connect
from ortoo.common.process.clock import SystemClock
from ortoo.snode.membership.redis_url import redis_client
from ortoo.snode.membership.store import COMPARE_INTERVAL_S
from ortoo.verification.servers.valkey import Valkey
from tests.e2e.consumer_cluster import POLL_S, Books, Member, consumer_cluster, ends_of, members, settled, until

QUEUES, FIRST, LATER = 12, 6, 2
HEALED_WITHIN_S = COMPARE_INTERVAL_S * 0.75
Trouble = Callable[[Valkey], Awaitable[None]]


async def flushed(store: Valkey) -> None:
    """An operator's FLUSHALL."""
    client = redis_client(store.url)
    await client.flushall()
    await client.aclose()


async def failed_over(store: Valkey) -> None:
    """Another server takes over the address, with an older snapshot of the first one's data: a lagging replica."""
    await store.stop()
    await store.start()


async def stored_members(store: Valkey) -> set[str]:
    """The client ids of the group in the store."""
    client = redis_client(store.url)
    try:
        return set(await client.hkeys("ortoo/members/g"))
    finally:
        await client.aclose()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", [flushed, failed_over], ids=lambda it: it.__name__)
async def test_membership_is_whole_and_disjoint_again(tmp_path: Path, trouble: Trouble) -> None:
    """The store soon knows all group members, each queue has one owner, and each consumer a queue.

    It does not take until snodes compare the versions of their groups.
    """
    books = Books()
    async with consumer_cluster(tmp_path) as running, connect(running.addresses) as mq:
        await mq.admin.create_topic("t", queue_count=QUEUES)
        async with members(running.addresses, "g", "t", FIRST, books) as first:
            await until(lambda: settled(first, QUEUES), 60)
            client = redis_client(running.store.url)
            await client.save()
            await client.aclose()
            async with members(running.addresses, "g", "t", LATER, books, prefix="later") as later:
                everybody = [*first, *later]
                await until(lambda: fair(everybody), 60)
                async with asyncio.timeout(60):
                    while len(names := await stored_members(running.store)) != len(everybody):
                        await SystemClock().sleep(POLL_S)
                await trouble(running.store)
                async with asyncio.timeout(HEALED_WITHIN_S):
                    while await stored_members(running.store) != names or not fair(everybody):
                        await SystemClock().sleep(POLL_S)
                async with mq.producer("t") as producer:
                    await asyncio.gather(*(producer.send(Message(b"%d" % number)) for number in range(500)))
                ends = await ends_of(mq, "t")
                await until(lambda: not books.missing(ends) and fair(everybody), 60)


def fair(found: list[Member]) -> bool:
    """Whether each queue has one owner, and each consumer a queue."""
    return settled(found, QUEUES) and all(member.consumer.queues for member in found)

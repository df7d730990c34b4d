"""One group with consumers of both kinds: push sessions of the snode, and pull consumers."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from ortoo.client import ConsumerSettings, Message, Queue, connect
from ortoo.common.process.background import Background
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.pull_group import prompt, until

MESSAGES, BATCH, BREAKS = 10_000, 250, 3


@pytest.mark.timeout(240)
async def test_pushed_and_pulling_members_share_a_group_through_breaks(tmp_path: Path) -> None:
    """E-078, E-125, E-133: every queue has one owner, first deliveries are in order, and none is missing."""
    first_seen: dict[Queue, list[int]] = {}
    count: Counter[tuple[Queue, int]] = Counter()

    def note(queue: Queue, offset: int) -> None:
        if not count[queue, offset]:
            first_seen.setdefault(queue, []).append(offset)
        count[queue, offset] += 1

    async with open_cluster(tmp_path) as cluster, asyncio.timeout(200):
        await cluster.create_topic("t", queues=8)
        async with (
            connect(cluster.address, client_id="pushed") as one,
            connect(cluster.address, client_id="pulling") as other,
            one.consumer("g", ["t"], ConsumerSettings(from_beginning=True, client_id="pushed")) as pushed,
            other.pull_consumer("g", ["t"], prompt(rebalance_interval_ms=500)) as pulling,
            Background("test") as background,
        ):

            async def take_pushed() -> None:
                async for message in pushed:
                    note(message.queue, message.offset)
                    message.ack()

            async def take_pulled() -> None:
                async for batch in pulling.batches():
                    for offset in batch.offsets:
                        note(batch.queue, offset)
                    batch.ack()

            background.spawn("pushed", take_pushed())
            background.spawn("pulled", take_pulled())
            await until(lambda: (len(pushed.queues), len(pulling.queues)) == (4, 4), 30)
            async with one.producer("t") as producer:
                for number in range(0, MESSAGES, BATCH):
                    spread = range(number, number + BATCH)
                    await producer.send_many([Message(b"%d" % n, message_group=str(n % 64)) for n in spread])
                    await producer.flush()
                    if number and number % (MESSAGES // (BREAKS + 1)) == 0:
                        await cluster.close("snode-0")  # all sessions, streams and pulls break
                        await cluster.open_snode("snode-0")
            await until(lambda: len(count) == MESSAGES, 60)
            # A member learns at its next call that a queue went to the other one: agreement comes after the last break.
            await until(lambda: (len(pushed.queues), len(pulling.queues)) == (4, 4), 30)
            assert not set(pushed.queues) & set(pulling.queues)
    assert sum(map(len, first_seen.values())) == MESSAGES
    for queue, offsets in first_seen.items():
        assert offsets == list(range(len(offsets))), queue
    assert len(first_seen) == 8

"""A pull consumer whose topic is deleted and created again under its name."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import Client, PullConsumer, Queue, ReceivedMessage, connect
from ortoo.client.pull.flow_control import FlowLimits
from ortoo.client.pull.queue_locks import ConsumerQueueLocks
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.pull_group import beside, only_queue, prompt, send, stored_offset, until

NEW = [b"new %d" % number for number in range(5)]


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a cluster with the topics t and one; a test that hangs is ended."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t")
        await cluster.create_topic("one", queues=1)
        async with connect(cluster.address) as opened:
            yield opened


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generations that servers grant, from now on."""
    seen: list[int] = []
    granted = ConsumerQueueLocks.add

    def noted(locks: ConsumerQueueLocks, queue: Queue, generation: int, asked_at_s: float) -> None:
        granted(locks, queue, generation, asked_at_s)
        seen.append(generation)

    monkeypatch.setattr(ConsumerQueueLocks, "add", noted)
    return seen


async def begin_again(mq: Client) -> None:
    """Create another topic of the name, with messages of its own."""
    await mq.admin.delete_topic("one")
    await mq.admin.create_topic("one", queue_count=1)
    await send(mq, NEW, "one")


async def made_again(mq: Client, renewals: list[int]) -> None:
    """Wait until the topic is another one, and the consumer has renewed its locks since."""
    await begin_again(mq)
    renewals.clear()
    await until(lambda: len(renewals) >= 2)


async def bodies(consumer: PullConsumer) -> list[bytes]:
    """The bodies of the first messages, as many as the recreated topic has."""
    found: list[bytes] = []
    while len(found) < len(NEW) and (batch := await consumer.poll(10_000)) is not None:
        found += batch.bodies()
        batch.ack()
    return found


async def test_a_topic_made_again_is_consumed_from_its_own_offsets(mq: Client) -> None:
    """G2: a consumer's offset in a deleted topic has no meaning in another one of the same name."""
    await send(mq, range(10), "one")
    async with mq.pull_consumer("g", "one", prompt(commit_first_ms=60_000, commit_interval_ms=60_000)) as consumer:
        batch = await consumer.poll()
        assert batch is not None
        batch.ack()
        await begin_again(mq)
        await consumer.commit()
        assert await bodies(consumer) == NEW


async def test_a_lock_of_a_topic_made_again_is_another_one(mq: Client, renewals: list[int]) -> None:
    """G2: a consumer that does not pull just then learns of it when it renews its locks, and stores no old offset."""
    await send(mq, range(10), "one")
    full = prompt(limits=FlowLimits(messages_max=1), lock_renewal_ms=100, commit_first_ms=60_000)
    async with mq.pull_consumer("g", "one", full) as consumer:
        batch = await consumer.poll()
        assert batch is not None
        for message in list(batch)[:5]:
            message.ack()
        await made_again(mq, renewals)
        await consumer.commit()
        assert await bodies(consumer) == NEW


async def test_a_queue_that_goes_stores_its_offset_under_the_lock_that_it_had(mq: Client, renewals: list[int]) -> None:
    """G2: also when the topic was recreated while a handler had the last message, and the lock was renewed there."""
    await send(mq, range(4), "one")
    arrived, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 3:
            arrived.set()
            await may_end.wait()

    settings = prompt(lock_renewal_ms=100, commit_first_ms=60_000, commit_interval_ms=60_000)
    async with mq.pull_consumer("g", "one", settings) as consumer:
        task = beside(consumer.run_in_order(handle))
        await arrived.wait()
        consumer.subscribe("t")
        await until(lambda: all(queue.topic != "one" for queue in consumer.queues))
        await made_again(mq, renewals)
        may_end.set()
        await until(lambda: len(consumer.queues) == 4)
        task.cancel()
    assert await stored_offset(mq, "g", await only_queue(mq, "one")) is None

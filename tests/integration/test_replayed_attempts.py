"""A dead letter that is sent again has all its attempts again."""

import asyncio
from pathlib import Path

import pytest

from ortoo.client import Client, ConsumerSettings, DeadLetter, ReceivedMessage, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.cluster import open_cluster

ATTEMPTS = 3


async def letters_of(mq: Client, count: int) -> list[DeadLetter]:
    """Wait for this number of dead letters of the group that were not sent again."""
    while len(found := [one async for one in mq.admin.list_dead_letters("g")]) != count:
        await SystemClock().sleep(0.05)
    return found


async def send_again(mq: Client) -> None:
    """Send the dead letter again."""
    [last] = [one async for one in mq.admin.replay_dead_letters("g")][-1:]
    assert last.replayed_messages == 1


@pytest.mark.parametrize("way", ["push", "pop"])
async def test_a_replayed_message_has_all_its_attempts_again(tmp_path: Path, way: str) -> None:
    """It fails as often as before until it is a dead letter again, in a group of either kind."""
    seen: list[int] = []

    async def fail(message: ReceivedMessage) -> None:
        seen.append(message.attempt)
        raise ValueError("no such customer")

    async def push(mq: Client) -> None:
        async with mq.consumer("g", "jobs", ConsumerSettings(from_beginning=True)) as consumer:
            await consumer.run(fail)

    async def pop(mq: Client) -> None:
        async with mq.pop_consumer("g", "jobs") as consumer:
            while True:
                for message in await consumer.pop(wait_ms=1_000):
                    seen.append(message.attempt)
                    await message.nack(error="no such customer")

    async with (
        open_cluster(tmp_path) as cluster,
        connect(cluster.address) as mq,
        Background("test") as background,
        asyncio.timeout(120),
    ):
        await cluster.create_topic("jobs", queues=1)
        await mq.admin.groups.update("g", attempts_max=ATTEMPTS, retry="list:10ms")
        async with mq.producer("jobs") as producer:
            await producer.send(b"order")
        consuming = background.spawn("consumer", {"push": push, "pop": pop}[way](mq))
        [first] = await letters_of(mq, 1)
        assert seen == [1, 2, 3]
        await send_again(mq)
        [again] = await letters_of(mq, 1)
        consuming.cancel()
    assert seen == [1, 2, 3] * 2
    assert (first.attempts, again.attempts) == (ATTEMPTS, ATTEMPTS)

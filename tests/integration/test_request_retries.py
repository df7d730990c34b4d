"""A request whose handler failed is answered by a later attempt."""

import asyncio
from pathlib import Path

import pytest

from ortoo.client import Consumer, ConsumerSettings, PullConsumer, PullSettings, ReceivedMessage, connect
from ortoo.common.process.background import Background
from ortoo.verification.servers.cluster import open_cluster


@pytest.mark.parametrize("is_pulled", [False, True], ids=["pushed", "pulled"])
async def test_a_later_attempt_replies_through_the_retry_topic(tmp_path: Path, is_pulled: bool) -> None:
    """The copy in the retry topic has the properties of its request."""
    attempts: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        attempts.append(message.attempt)
        if message.attempt < 2:
            raise ValueError("not yet")
        assert await message.reply(b"at last")

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        await mq.admin.groups.update("g", retry="list:100ms")
        consumer: Consumer | PullConsumer = (
            mq.pull_consumer("g", "t", PullSettings(from_beginning=True))
            if is_pulled
            else mq.consumer("g", "t", ConsumerSettings(from_beginning=True))
        )
        async with consumer, mq.producer("t") as producer, Background("served") as background:
            background.spawn("run", consumer.run(handle))
            assert (await producer.request(b"?", timeout_s=40)).body == b"at last"
    assert attempts[:2] == [1, 2]

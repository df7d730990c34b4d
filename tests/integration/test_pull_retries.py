"""Messages that a pull consumer's handler could not process: nacked, parked, or held."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from ortoo.client import Client, HandlerOptions, NotFound, ReceivedMessage, RetryLater, Unavailable, connect
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.pull_group import PROMPT, beside, only_queue, send, stored_offset, until


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a cluster with the topic one of one queue; a test that hangs is ended."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        await cluster.create_topic("one", queues=1)
        async with connect(cluster.address) as opened:
            yield opened


async def test_a_failed_message_comes_again_once_and_by_itself(mq: Client) -> None:
    """E-171, E-174, E-170: it is nacked, comes after its delay by the group's retry topic, with its attempt number."""
    await send(mq, range(10), "one")
    seen: list[tuple[bytes, int, str, str]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.attempt, message.topic, message.origin_topic))
        if message.body == b"4" and message.attempt == 1:
            raise RetryLater(delay_level=1)

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        running = beside(consumer.run(handle))
        await until(lambda: len(seen) == 11)
        assert seen[-1] == (b"4", 2, "%RETRY%g", "one")
        assert {queue.topic for queue in consumer.queues} == {"one", "%RETRY%g"}
        running.cancel()
    assert (await mq.admin.describe_lag("g", "one")).lag_messages == 0
    assert (await mq.admin.describe_lag("g", "%RETRY%g")).lag_messages == 0


async def test_a_message_may_be_parked_at_once(mq: Client) -> None:
    """E-173: level -1 makes it a dead letter. It does not come again."""
    await send(mq, [b"bad"], "one")

    async def handle(message: ReceivedMessage) -> None:
        raise RetryLater(delay_level=-1)

    async def is_parked() -> bool:
        try:
            letters = [it.message.body async for it in mq.admin.tail("%DLQ%g", from_beginning=True, follow=False)]
        except NotFound:
            return False
        return letters == [b"bad"]

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        running = beside(consumer.run(handle))
        await until(is_parked)
        running.cancel()


async def test_after_its_attempts_a_message_is_parked(mq: Client) -> None:
    """E-172: with two attempts it is delivered twice, then it is a dead letter and does not come again (G9)."""
    await send(mq, [b"bad"], "one")
    attempts: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        attempts.append(message.attempt)
        raise RetryLater(delay_level=1)

    async def is_parked() -> bool:
        try:
            return [it.message.body async for it in mq.admin.tail("%DLQ%g", from_beginning=True, follow=False)] == [
                b"bad"
            ]
        except NotFound:
            return False

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        running = beside(consumer.run(handle, HandlerOptions(attempts_max=2)))
        await until(is_parked)
        running.cancel()
    assert attempts == [1, 2]


async def test_a_message_whose_handler_does_not_return_is_given_back(mq: Client) -> None:
    """E-175: after the timeout its offset no longer blocks the others'."""
    queue = await only_queue(mq, "one")
    await send(mq, range(3), "one")

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 0:
            await asyncio.Event().wait()

    async def is_stored() -> bool:
        return await stored_offset(mq, "g", queue) == 3

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        running = beside(consumer.run(handle, HandlerOptions(timeout_ms=300)))
        await until(is_stored)
        running.cancel()


async def test_a_message_that_cannot_be_given_back_comes_again_here(mq: Client) -> None:
    """E-149: of four messages two are done. The other two stay with this consumer and come again after a pause."""
    await send(mq, range(4), "one")
    calls: list[list[int]] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> int:
        calls.append([it.offset for it in messages])
        return 2

    async def refuse(*_: object, **__: object) -> None:
        raise Unavailable("not now")

    with mock.patch("ortoo.client.pull.pull_handlers.nack_messages", refuse):
        async with mq.pull_consumer("g", "one", PROMPT) as consumer:
            running = beside(consumer.run_batches(handle, HandlerOptions(batch_messages_max=4, retry_delay_ms=50)))
            await until(lambda: len(calls) == 2)
            running.cancel()
    assert calls == [[0, 1, 2, 3], [2, 3]]


async def test_with_one_handler_at_a_time_a_message_that_stays_here_waits_for_no_other(mq: Client) -> None:
    """A task that waits for new messages must not hold the only handler slot: no message may come for hours."""
    await send(mq, range(1), "one")
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 1:
            raise ValueError("not yet")

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        away = mock.AsyncMock(side_effect=Unavailable("away"))
        with mock.patch("ortoo.client.pull.pull_handlers.nack_messages", away):
            running = beside(consumer.run(handle, HandlerOptions(concurrency=1, retry_delay_ms=50)))
            await until(lambda: len(seen) == 2)
            running.cancel()
    assert (await mq.admin.describe_lag("g", "one")).lag_messages == 0

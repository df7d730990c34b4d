"""`ortoo explain GROUP TOPIC ID` finds a message wherever it waits."""

import asyncio
from pathlib import Path

from ortoo.client import (
    Client,
    ConsumerSettings,
    Message,
    PopSettings,
    ReceivedMessage,
    TransactionCheck,
    TransactionVerdict,
    connect,
)
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import process_cluster

CLOCK = SystemClock()


async def reasons(mq: Client, group: str, topic: str, message_id: str = "") -> dict[str, str]:
    """Name to observation."""
    found = await mq.admin.operations.explain_consumption(group, topic, message_id)
    return {one.name: one.observed for one in found.reasons}


async def silent_for(mq: Client, seconds: float) -> dict[str, str]:
    """The reasons of the group `pushes` after a time in which it acknowledges nothing."""
    await CLOCK.sleep(seconds)
    return await reasons(mq, "pushes", "t")


async def test_messages_that_are_not_visible_yet_are_explained(tmp_path: Path) -> None:
    """A delayed message with a generated id or its own, and a message of an open transaction."""
    async with asyncio.timeout(280), process_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        due_ms = CLOCK.now_ms() + 3_600_000
        async with mq.producer("t") as producer:
            generated = (await producer.send(Message(b"later", deliver_at_ms=due_ms))).message_id
            await producer.send(Message(b"later", deliver_at_ms=due_ms, message_id="order-7"))
        for message_id in (generated, "order-7"):
            found = await reasons(mq, "g", "t", message_id)
            assert list(found) == ["not due"]
            assert found["not due"].startswith("the message is delayed for another 3")

        async def undecided(check: TransactionCheck) -> TransactionVerdict:
            return TransactionVerdict.UNKNOWN

        async with mq.transactional_producer("t", "banks", undecided) as transactional:
            transaction = await transactional.begin(Message(b"half", message_id="transfer-9"))
            found = await reasons(mq, "g", "t", "transfer-9")
            assert list(found) == ["open transaction"]
            assert "producer group banks" in found["open transaction"]
            await transaction.rollback()


async def test_a_message_whose_copy_waits_in_retries_is_not_reported_as_finished(tmp_path: Path) -> None:
    """The group's offset has passed the message; the time of the next attempt and the error are shown."""
    async with asyncio.timeout(280), process_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        await mq.admin.groups.update("g", retry="list:1h")
        async with mq.producer("t") as producer:
            message_id = (await producer.send(b"first")).message_id

        async def fail(message: ReceivedMessage) -> None:
            raise RuntimeError("the shop is closed")

        settings = ConsumerSettings(from_beginning=True, ack_interval_ms=10)
        async with mq.consumer("g", "t", settings) as consumer, Background("consumer") as background:
            background.spawn("consumer", consumer.run(fail))
            while (await mq.admin.describe_lag("g", "t")).queues[0].committed_offset < 1:
                await CLOCK.sleep(0.05)
            found = await reasons(mq, "g", "t", message_id)
        assert "acknowledged" not in found
        assert found["delayed"].startswith("attempt 1 failed and the next one is in 3")
        assert "the shop is closed" in found["delayed"]


async def test_a_message_behind_a_failed_one_of_its_message_group_is_explained(tmp_path: Path) -> None:
    """For a push consumer and for a pop consumer in order: which message, which attempt, when the next one is."""
    async with asyncio.timeout(280), process_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        for group in ("pushes", "pops"):
            await mq.admin.groups.update(group, retry="list:1h")
        async with mq.producer("t") as producer:
            first, second, other = [
                (await producer.send(Message(b"x", message_group=one))).message_id for one in ("a", "a", "b")
            ]

        async def fail(message: ReceivedMessage) -> None:
            raise RuntimeError("no such customer")

        settings = ConsumerSettings(from_beginning=True)
        async with mq.consumer("pushes", "t", settings) as consumer, Background("consumer") as background:
            background.spawn("consumer", consumer.run(fail))
            while "behind another message" not in (found := await reasons(mq, "pushes", "t", second)):
                await CLOCK.sleep(0.05)
            assert (
                f"it waits behind message {first} (offset 0 of t), attempt 1, the next attempt is in 3"
                in (found["behind another message"])
            )
            assert "no such customer" in found["behind another message"]
            backlog = (await mq.admin.describe_lag("pushes", "t")).by_state
            assert (backlog.retrying, backlog.waiting) == (1, 2)
            assert "attempt 1 failed" in (await reasons(mq, "pushes", "t", first))["delayed"]
            assert not [one for one in await silent_for(mq, 11) if "silent" in one]  # it waits for the retry

        async with mq.pop_consumer("pops", "t", "*", PopSettings(in_order=True, messages_max=1)) as popping:
            (message,) = await popping.pop(wait_ms=10_000)
            assert message.message_id == first
            await message.nack(error="no such customer")
            found = await reasons(mq, "pops", "t", second)
            assert f"it waits behind message {first} (offset 0 of t), attempt 1" in found["behind another message"]
            assert "behind another message" not in await reasons(mq, "pops", "t", other)


async def test_a_consumer_that_is_evicted_again_and_again_is_named(tmp_path: Path) -> None:
    """Its sessions end before it counts as silent. Doctor and explain name the client, the queue and the number."""
    async with asyncio.timeout(280), process_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        await mq.admin.groups.update("g", slow_consumer_threshold_messages=1, slow_consumer_grace_ms=300)
        async with mq.producer("t") as producer:
            for _ in range(5):
                await producer.send(b"x")

        async def hang(message: ReceivedMessage) -> None:
            if message.offset:
                await CLOCK.sleep(3_600)

        settings = ConsumerSettings(from_beginning=True, client_id="sleeper")
        async with mq.consumer("g", "t", settings) as consumer, Background("consumer") as background:
            background.spawn("consumer", consumer.run(hang))
            while "ended 2 times" not in (found := await reasons(mq, "g", "t")).get("slow consumer", ""):
                await CLOCK.sleep(0.2)
            assert found["slow consumer"].startswith("the push session of sleeper in group g was ended")
            assert "queue t/enode-0/0" in found["slow consumer"]
            assert "consumer lag" not in found
            named = {one.name: one for one in await mq.admin.operations.list_findings(timeout_s=30)}
            assert "sleeper" in named["slow consumer"].observed
            assert "py-spy dump" in named["slow consumer"].remedy


async def test_a_consumer_whose_handler_sleeps_is_named(tmp_path: Path) -> None:
    """A push consumer that acknowledges nothing, and a pop consumer that holds a message."""
    async with asyncio.timeout(280), process_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send(b"x")
        settings = ConsumerSettings(from_beginning=True, client_id="sleeper")
        async with mq.consumer("pushes", "t", settings) as consumer:
            async for _ in consumer.batches():
                break  # received, and never acknowledged
            while "silent consumer" not in (found := await reasons(mq, "pushes", "t")):
                await CLOCK.sleep(0.2)
            assert found["silent consumer"].startswith("sleeper has 1 message of")
            assert "consumer lag" not in found
        async with mq.pop_consumer("pops", "t", "*", PopSettings(client_id="holder")) as popping:
            await popping.pop(wait_ms=10_000)
            assert (await reasons(mq, "pops", "t"))["leased"].endswith("not acknowledged, by holder")

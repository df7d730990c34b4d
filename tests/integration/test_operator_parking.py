"""An operator parks messages of a group, whichever consumer holds them; the group continues after them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import (
    Client,
    Conflict,
    ConsumerSettings,
    DeadLetter,
    Invalid,
    Message,
    NotFound,
    PopConsumer,
    PopSettings,
    Queue,
    ReceivedMessage,
    RetryLater,
    connect,
)
from ortoo.client.core.wire import wire_queue
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.command import run as run_command
from tests.integration.pull_group import PROMPT, beside, until

QUEUE = Queue("jobs", "enode-0", 0)
IN_ORDER = PopSettings(messages_max=1, in_order=True)


async def send(mq: Client, message_groups: Sequence[str | None]) -> None:
    """Send one message for each message group, with its number as the body."""
    async with mq.producer("jobs") as producer:
        for number, group in enumerate(message_groups):
            await producer.send(Message(b"%d" % number, message_group=group))


async def popped(consumer: PopConsumer) -> set[bytes]:
    """The next two bodies, acknowledged, after which the consumer gets nothing more."""
    bodies = set[bytes]()
    while len(bodies) < 2:
        for message in await consumer.pop(wait_ms=10_000):
            bodies.add(message.body)
            await message.ack()
    assert await consumer.pop(wait_ms=500) == []
    return bodies


async def letters(mq: Client, group: str = "g") -> list[DeadLetter]:
    """The dead letters of a group."""
    return [one async for one in mq.admin.list_dead_letters(group)]


async def test_a_held_message_is_parked_and_its_message_group_continues(tmp_path: Path) -> None:
    """A consumer holds the first message of an order. The dry run changes nothing, and the late ack is no error."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, ["a", "a", "b"])
        async with mq.pop_consumer("g", "jobs", settings=IN_ORDER) as consumer:
            [held] = await consumer.pop()
            preview = await mq.admin.groups.park_messages("g", QUEUE, [held.offset], dry_run=True)
            assert [(one.offset, one.state, one.attempt) for one in preview.deliveries] == [(0, "leased", 1)]
            assert await letters(mq) == []
            parked = await mq.admin.groups.park_messages("g", QUEUE, [held.offset], reason="broken amount")
            (before,), (after,) = preview.deliveries, parked.deliveries
            assert (replace(after, until_ms=before.until_ms), parked.offset) == (before, None)  # it may be renewed
            [letter] = await letters(mq)
            assert (letter.origin_offset, letter.attempts) == (0, 1)
            assert (letter.reason, letter.error, letter.consumer) == ("asked", "broken amount", "operator")
            await held.ack()
            assert await popped(consumer) == {b"1", b"2"}
        again = await mq.admin.groups.park_messages("g", QUEUE, [0])
        assert (again.deliveries, len(await letters(mq))) == ((), 1), "one dead letter, also for a repeated call"
        [entry] = [one for one in (await mq.admin.users.list_audit_entries()).entries if "Park" in one.method][1:]
        assert (entry.method, entry.error) == ("AdminService/ParkMessages", "")
        assert entry.target == "group=g queue.topic=jobs queue.enode=enode-0"


async def test_a_message_group_is_parked_as_a_whole(tmp_path: Path) -> None:
    """Its later messages are parked too, those of other message groups are not, and other groups still get all."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, ["a", "b", "a", None, "a"])
        async with mq.pop_consumer("g", "jobs", settings=IN_ORDER) as consumer:
            [held] = await consumer.pop()
            await held.nack(3_600_000, error="the card was declined")
            parked = await mq.admin.groups.park_messages("g", QUEUE, [0], message_groups=True)
            states = [(one.offset, one.state, one.error) for one in parked.deliveries]
            assert states == [(0, "delayed", "the card was declined"), (2, "waiting", ""), (4, "waiting", "")]
            assert await popped(consumer) == {b"1", b"3"}
        assert [(one.origin_offset, one.attempts) for one in await letters(mq)] == [(0, 1), (2, 0), (4, 0)]
        async with mq.pop_consumer("other", "jobs", settings=PopSettings(messages_max=10)) as other:
            assert len(await other.pop()) == 5


async def test_a_group_that_commits_offsets_continues_after_its_first_message(tmp_path: Path) -> None:
    """Its members continue there at once. A later message alone is refused, because the offset would skip others."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, [None] * 4)
        async with mq.consumer("g", ["jobs"], ConsumerSettings(from_beginning=True)) as consumer:
            messages = aiter(consumer)
            (await anext(messages)).ack()
            assert (await anext(messages)).offset == 1
            while (await mq.admin.groups.describe("g")).progress[0].lag_messages != 3:
                await cluster.clock.sleep(0.05)
            with pytest.raises(Conflict, match="has not finished the message at offset 1"):
                await mq.admin.groups.park_messages("g", QUEUE, [2])
            with pytest.raises(Invalid, match="cannot skip later messages"):
                await mq.admin.groups.park_messages("g", QUEUE, [1], message_groups=True)
            preview = await mq.admin.groups.park_messages("g", QUEUE, [1, 2], dry_run=True)
            assert ([one.offset for one in preview.deliveries], preview.offset) == ([1, 2], 3)
            await mq.admin.groups.park_messages("g", QUEUE, [1, 2], reason="broken")
            async for message in consumer:
                message.ack()
                if message.offset == 3:
                    break
        assert [(one.origin_offset, one.error, one.consumer) for one in await letters(mq)] == [
            (1, "broken", "operator"),
            (2, "broken", "operator"),
        ]


async def test_a_commit_between_the_look_and_the_parking_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer finishes the message before its dead letter is stored, or commits later ones after that."""
    commit = GrpcEnodeLink.commit_offsets

    async def committed() -> int:
        progress = (await mq.admin.groups.describe("g")).progress
        return next(one.offsets[0].offset for one in progress if one.topic == "jobs")

    def commit_before(method: str, offset: int) -> None:
        """Let a consumer commit this offset right before the next call of this method."""
        original = getattr(GrpcEnodeLink, method)

        async def call(link: Any, *args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(GrpcEnodeLink, method, original)
            await commit(link, topic.topic_id, "g", [(0, offset, 0)])
            return await original(link, *args, **kwargs)

        monkeypatch.setattr(GrpcEnodeLink, method, call)

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        topic = await cluster.create_topic("jobs", queues=1)
        await send(mq, [None] * 4)
        async with mq.consumer("g", ["jobs"], ConsumerSettings(from_beginning=True)) as consumer:
            (await anext(aiter(consumer))).ack()
        assert await committed() == 1
        commit_before("retry_messages", 2)
        with pytest.raises(Conflict, match="has finished the message at offset 1 meanwhile"):
            await mq.admin.groups.park_messages("g", QUEUE, [1])
        assert (await letters(mq), await committed()) == ([], 2)
        commit_before("commit_offsets", 4)
        await mq.admin.groups.park_messages("g", QUEUE, [2])
        assert ([one.origin_offset for one in await letters(mq)], await committed()) == ([2], 4)


async def test_a_copy_in_the_retry_topic_is_parked_there(tmp_path: Path) -> None:
    """The handler fails, and then hangs with the copy. The dead letter of the copy names the original."""
    retries = Queue("%RETRY%g", "enode-0", 0)
    topics: list[str] = []
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, [None])

        async def handle(message: ReceivedMessage) -> None:
            topics.append(message.topic)
            if message.topic == "jobs":
                raise RetryLater(delay_level=1)
            await asyncio.Event().wait()

        async def unfinished_copies() -> int:
            progress = (await mq.admin.groups.describe("g")).progress
            return sum(one.lag_messages for one in progress if one.topic == retries.topic)

        async with mq.pull_consumer("g", "jobs", PROMPT) as consumer:
            running = beside(consumer.run(handle))
            await until(lambda: topics == ["jobs", retries.topic])
            assert await unfinished_copies() == 1
            await mq.admin.groups.park_messages("g", retries, [0], reason="broken")
            assert await unfinished_copies() == 0
            running.cancel()
        [letter] = await letters(mq)
        assert (letter.origin_queue, letter.origin_offset, letter.error) == (QUEUE, 0, "broken")


async def test_a_retry_is_parked_before_the_group_has_read_its_retry_topic(tmp_path: Path) -> None:
    """The group stopped before the retry was due. It gets no retry later, and the dead letter names the first place."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("jobs", queues=1)
        await send(mq, [None])
        async with mq.consumer("g", ["jobs"], ConsumerSettings(from_beginning=True)) as consumer:
            (await anext(aiter(consumer))).ack()
        failed = pull_pb2.NackMessagesRequest(group="g", queue=wire_queue(QUEUE), offsets=[0], delay_level=1)
        await mq._connection.call(ConsumerServiceStub, "NackMessages", failed)
        retry = Queue("%RETRY%g", "enode-0", 0)
        with pytest.raises(Conflict, match="group other has no offset"):
            while True:
                try:
                    await mq.admin.groups.park_messages("other", retry, [0])
                except NotFound:  # until the retry is due
                    await cluster.clock.sleep(0.05)
        parked = await mq.admin.groups.park_messages("g", retry, [0])
        assert ([one.offset for one in parked.deliveries], parked.offset) == ([0], 1)
        assert [(one.origin_queue, one.origin_offset) for one in await letters(mq)] == [(QUEUE, 0)]
        assert (await mq.admin.groups.park_messages("g", retry, [0])).deliveries == ()


async def test_messages_that_cannot_be_parked_are_refused(tmp_path: Path) -> None:
    """The error names the field. Nothing is parked, and no dead-letter topic is created."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, [None])
        park = mq.admin.groups.park_messages
        for queue, offsets, error, field in (
            (QUEUE, [], Invalid, "offsets"),
            (QUEUE, [-1], Invalid, "offsets"),
            (QUEUE, [0, 10_000], Invalid, "offsets"),
            (QUEUE, [1], NotFound, "offsets"),
            (QUEUE, [0], Conflict, "group"),
            (Queue("jobs", "enode-0", 7), [0], Invalid, "queue.queue_id"),
            (Queue("nothing", "enode-0", 0), [0], NotFound, "topic"),
        ):
            with pytest.raises(error) as caught:
                await park("g", queue, offsets)
            assert caught.value.field == field, (queue, offsets)
        with pytest.raises(Invalid) as caught:
            await park("g", QUEUE, [0], reason="x" * 1_025)
        assert caught.value.field == "reason"
        assert [one.name for one in await mq.admin.list_topics()] == ["jobs"]


async def test_the_command_parks(tmp_path: Path) -> None:
    """`ortoo dlq park`, first as a dry run."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, ["a", "a"])
        async with mq.pop_consumer("g", "jobs", settings=IN_ORDER) as consumer:
            await consumer.pop()
            command = ("ortoo", "dlq", "park", "g", "jobs", "enode-0", "0", "0", "--message-groups")
            for option, said in (
                ("--dry-run", "2 messages would be parked"),
                ("", "2 messages parked"),
                ("", "0 mess"),
            ):
                outcome = await run_command((*command, *filter(None, [option])), cluster.address)
                assert (outcome.exit_code, said in outcome.stdout) == (0, True), outcome
        assert len(await letters(mq)) == 2

"""Lite topics over the wire, as any client of RocketMQ's protocol sees them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import connect
from ortoo.common.process.background import Background
from ortoo.v1 import topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.lite_client import ADD, COMPLETE, GROUP, REMOVE, TOPIC, LiteClient, bodies


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[tuple[InProcessCluster, LiteClient]]:
    """A cluster with a parent topic `t`, and a client."""
    async with open_cluster(folder, **settings) as cluster, grpc.aio.insecure_channel(cluster.address) as channel:
        await cluster.create_topic("t", message_type=topic_pb2.MESSAGE_TYPE_LITE)
        yield cluster, LiteClient(MessagingServiceStub(channel))


async def test_each_lite_topic_is_a_queue_of_its_own(tmp_path: Path) -> None:
    """One message of each is in flight at a time, over several enodes; each names its lite topic."""
    async with served(tmp_path, enodes=2) as (_, client):
        assert await client.sync(ADD, "a", "b", "c") == Code.OK
        sent = await client.send(*((name, b"%s%d" % (name.encode(), n)) for n in range(2) for name in "abcx"))
        assert (sent.status.code, len(sent.entries)) == (Code.OK, 8)
        assert [entry.message_id for entry in sent.entries[:2]] == ["a0", "b0"]
        assert [entry.transaction_id for entry in sent.entries[:2]] == ["a0", "b0"]  # as RocketMQ
        first = await client.receive()
        assert bodies(first) == [b"a0", b"b0", b"c0"]
        assert {one.system_properties.lite_topic: one.body for one in first} == {"a": b"a0", "b": b"b0", "c": b"c0"}
        for one in first:
            assert (one.topic.name, one.system_properties.message_type) == ("t", d.MessageType.LITE)
            assert not one.system_properties.HasField("message_group")
        assert await client.receive() == []
        assert await client.ack(first[0]) == Code.OK
        [second] = await client.receive()
        assert second.body == first[0].body[:1] + b"1"


async def test_only_what_is_subscribed_comes_and_the_rest_waits(tmp_path: Path) -> None:
    """Subscriptions belong to a client; messages without a subscriber are kept for later subscribers."""
    async with served(tmp_path) as (_, one):
        other = LiteClient(one.stub, "other")
        await one.send(("a", b"a0"), ("b", b"b0"))
        assert await one.receive() == []
        assert (await one.sync(ADD, "a"), await other.sync(COMPLETE, "b")) == (Code.OK, Code.OK)
        assert (bodies(await one.receive()), bodies(await other.receive())) == ([b"a0"], [b"b0"])
        await one.send(("a", b"a1"), ("c", b"c0"))
        assert (await one.sync(REMOVE, "a"), await other.sync(COMPLETE, "c")) == (Code.OK, Code.OK)
        assert (bodies(await one.receive()), bodies(await other.receive())) == ([], [b"c0"])


async def test_an_empty_poll_is_woken_by_a_message_and_by_a_subscription(tmp_path: Path) -> None:
    """Both wake a poll that waits already, long before its timeout."""
    async with served(tmp_path) as (_, client), Background("test") as background:
        await client.send(("b", b"b0"))
        await client.sync(ADD, "a")
        for wake in (client.send(("a", b"a0")), client.sync(ADD, "b")):
            polling = background.spawn("poll", client.receive(wait_s=20))
            await wake
            assert len(await polling) == 1


async def test_two_clients_share_a_lite_topic(tmp_path: Path) -> None:
    """While one has a message of it the other gets none; when the first has left, the other receives the rest."""
    async with served(tmp_path) as (_, one):
        other = LiteClient(one.stub, "other")
        await one.sync(ADD, "a")
        await other.sync(ADD, "a")
        await one.send(("a", b"a0"), ("a", b"a1"))
        [first] = await one.receive()
        assert await other.receive() == []
        await one.ack(first)
        await one.stub.NotifyClientTermination(s.NotifyClientTerminationRequest(group=GROUP), metadata=one.metadata)
        assert await one.receive() == []
        assert bodies(await other.receive()) == [b"a1"]


async def test_a_plain_group_receives_all_lite_topics(tmp_path: Path) -> None:
    """By tag, each message with its lite topic, also one that is created while the poll waits."""
    async with served(tmp_path, enodes=2) as (_, client), Background("test") as background:
        plain = LiteClient(client.stub, "plain")
        await plain.beat(d.SIMPLE_CONSUMER)
        for tag in ("task", "other"):
            await client.send(*((name, f"{tag}-{name}".encode()) for name in "abc"), tag=tag)
        received: list[d.Message] = []
        while len(received) < 3:
            found = await plain.receive(wait_s=10, tags="task")
            received += found
            assert [await plain.ack(one) for one in found] == [Code.OK] * len(found)
        assert {one.system_properties.lite_topic: one.body for one in received} == {
            name: b"task-" + name.encode() for name in "abc"
        }
        waiting = background.spawn("poll", plain.receive(wait_s=20, tags="task"))
        while waiting.done():
            waiting = background.spawn("poll", plain.receive(wait_s=20, tags="task"))
        await client.send(("new", b"task-new"), tag="task")
        [last] = await waiting
        assert (last.topic.name, last.system_properties.lite_topic, last.body) == ("t", "new", b"task-new")


async def test_a_group_has_either_plain_or_lite_consumers(tmp_path: Path) -> None:
    """The plain consumer hears why it gets nothing."""
    async with served(tmp_path) as (_, client):
        await client.sync(ADD, "a")
        plain = LiteClient(client.stub, "plain")
        await plain.beat(d.PUSH_CONSUMER)
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=d.MessageQueue(topic=TOPIC),
            batch_size=1,
            invisible_duration=Duration(seconds=30),
            long_polling_timeout=Duration(seconds=20),
        )
        frames = [one async for one in plain.stub.ReceiveMessage(request, metadata=plain.metadata, timeout=30)]
        assert [frame.status.code for frame in frames] == [Code.ILLEGAL_CONSUMER_GROUP]
        assert "use another group" in frames[0].status.message


async def test_a_subscription_creates_no_topic(tmp_path: Path) -> None:
    """The first message creates the lite topic, and the waiting poll gets it."""
    async with served(tmp_path) as (cluster, client), Background("test") as background:
        assert await client.sync(ADD, "a") == Code.OK
        assert await client.receive() == []
        async with connect(cluster.address) as mq:
            assert [one.name for one in await mq.admin.list_topics()] == ["t"]
        waiting = background.spawn("poll", client.receive(wait_s=20))
        await client.send(("b", b"b0"), ("a", b"a0"))
        assert bodies(await waiting) == [b"a0"]


async def test_a_suspended_lite_topic_comes_again_as_the_same_attempt(tmp_path: Path) -> None:
    """Suspending releases the message uncounted and blocks this lite topic only."""
    async with served(tmp_path) as (_, client):
        await client.sync(ADD, "a", "b")
        await client.send(("a", b"a0"))
        [taken] = await client.receive()
        await suspend(client, taken, 600)
        await client.send(("a", b"a1"), ("b", b"b0"))
        [other] = await client.receive()
        assert other.body == b"b0"
        await suspend(client, other, 1)
        [again] = await client.receive(wait_s=20)
        assert (again.body, again.system_properties.delivery_attempt) == (b"b0", 1)


async def suspend(client: LiteClient, taken: d.Message, seconds: int) -> None:
    """Suspend the lite topic of a received message."""
    request = s.ChangeInvisibleDurationRequest(
        group=GROUP,
        topic=TOPIC,
        receipt_handle=taken.system_properties.receipt_handle,
        invisible_duration=Duration(seconds=seconds),
        lite_topic=taken.system_properties.lite_topic,
        suspend=True,
    )
    assert (await client.stub.ChangeInvisibleDuration(request, metadata=client.metadata)).status.code == Code.OK


@pytest.mark.parametrize(
    ("names", "more", "code"),
    [
        (["a b"], {}, Code.ILLEGAL_LITE_TOPIC),
        ([""], {}, Code.ILLEGAL_LITE_TOPIC),
        (["x" * 65], {}, Code.ILLEGAL_LITE_TOPIC),
        ([f"n{n}" for n in range(2001)], {}, Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED),
        (["a"], {"topic": "absent"}, Code.TOPIC_NOT_FOUND),
        (["a"], {"topic": "plain"}, Code.ILLEGAL_TOPIC),
        (["a"], {"topic": "other"}, Code.ILLEGAL_TOPIC),
        (["a"], {"topic": "a b"}, Code.ILLEGAL_TOPIC),
        (["a"], {"group": ""}, Code.ILLEGAL_CONSUMER_GROUP),
        (["a"], {"offset_option": d.OffsetOption(tail_n=3)}, Code.NOT_IMPLEMENTED),
    ],
)
async def test_wrong_subscriptions_are_refused(
    names: list[str], more: dict[str, Any], code: "Code.ValueType", tmp_path: Path
) -> None:
    """Each has its code, and existing subscriptions stay."""
    async with served(tmp_path) as (cluster, client):
        await cluster.create_topic("plain")
        await cluster.create_topic("other", message_type=topic_pb2.MESSAGE_TYPE_LITE)
        assert await LiteClient(client.stub, "member").sync(ADD, "kept") == Code.OK
        assert await client.sync(ADD, "kept") == Code.OK
        assert await client.sync(ADD, *names, **more) == code
        await client.send(("kept", b"k"))
        assert bodies(await client.receive()) == [b"k"]


async def test_wrong_messages_are_refused(tmp_path: Path) -> None:
    """A parent topic accepts only messages of lite topics with a legal name."""
    async with served(tmp_path) as (_, client):
        assert (await client.send(("a.b", b"x"))).status.code == Code.ILLEGAL_LITE_TOPIC
        plain = d.Message(topic=TOPIC, body=b"x", system_properties=d.SystemProperties(message_id="i"))
        answer = await client.stub.SendMessage(s.SendMessageRequest(messages=[plain]), metadata=client.metadata)
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE

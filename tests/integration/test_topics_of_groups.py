"""Retry topics and dead-letter topics: only the servers write to them, whatever the permissions of the caller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.v1 import admin_pb2, dead_letter_pb2, failure_pb2, namesrv_pb2, producer_pb2, pull_pb2, record_pb2, topic_pb2
from ortoo.v1.dead_letter_pb2_grpc import DeadLetterServiceStub
from tests.integration.snode_calls import Snode, batch_request, open_snode_cluster

TOPICS = ("%RETRY%g", "%DLQ%g", "%RETRY%missing", "%DLQ%missing")
WHO = (("x-mq-client-id", "c"),)
LATER_MS = 3_600_000
Send = Callable[[Snode, str, topic_pb2.Queue], Awaitable[str]]
"""Sends to a topic; returns the code and the text of the refusal."""


async def refusal(call: Awaitable[Any]) -> str:
    """The code and the text of a refused call; empty if it succeeded."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {error.details()}"
    return ""


def publishes(**fields: Any) -> Send:
    """Publish, of a message with these fields."""

    async def send(snode: Snode, topic: str, queue: topic_pb2.Queue) -> str:
        late: Any = {name: snode.cluster.clock.now_ms() + LATER_MS for name in fields}
        messages = [record_pb2.Message(body=b"x", **late)]
        return await refusal(snode.producer.Publish(producer_pb2.PublishRequest(topic=topic, messages=messages)))

    return send


async def publish_to_queue(snode: Snode, topic: str, queue: topic_pb2.Queue) -> str:
    """Publish, with a queue."""
    request = producer_pb2.PublishRequest(topic=topic, messages=[record_pb2.Message(body=b"x")], queue=queue)
    return await refusal(snode.producer.Publish(request))


async def begin(snode: Snode, topic: str, queue: topic_pb2.Queue) -> str:
    """BeginTransaction."""
    messages = [record_pb2.Message(body=b"x")]
    request = producer_pb2.BeginTransactionRequest(topic=topic, messages=messages, producer_group="p")
    return await refusal(snode.producer.BeginTransaction(request))


async def produce(snode: Snode, topic: str, queue: topic_pb2.Queue) -> str:
    """Produce."""
    failure = (await snode.produce(batch_request(1, queue, [b"x"])))[1].failure
    is_forbidden = failure.kind == failure_pb2.FAILURE_KIND_FORBIDDEN
    return f"{'PERMISSION_DENIED' if is_forbidden else failure.kind} {failure.message}"


async def replay(snode: Snode, topic: str, queue: topic_pb2.Queue) -> str:
    """ReplayDeadLetters of another group, to this topic."""

    async def run() -> None:
        stub = DeadLetterServiceStub(snode.cluster.channels.channel_to(snode.cluster.address))
        async for _ in stub.ReplayDeadLetters(dead_letter_pb2.ReplayDeadLettersRequest(group="h", to_topic=topic)):
            pass

    return (await refusal(run())).replace("leave to_topic empty", "ReplayDeadLetters")


def sends(message_type: d.MessageType.ValueType) -> Send:
    """SendMessage of RocketMQ's protocol, of a message type."""

    async def send(snode: Snode, topic: str, queue: topic_pb2.Queue) -> str:
        about = d.SystemProperties(message_type=message_type, message_id="m")
        if message_type == d.DELAY:
            about.delivery_timestamp.CopyFrom(Timestamp(seconds=(snode.cluster.clock.now_ms() + LATER_MS) // 1000))
        message = d.Message(topic=d.Resource(name=topic), system_properties=about, body=b"x")
        stub = MessagingServiceStub(snode.cluster.channels.channel_to(snode.cluster.address))
        told = await stub.SendMessage(s.SendMessageRequest(messages=[message]), metadata=WHO)
        return f"{d.Code.Name(told.status.code)} {told.status.message}".replace("FORBIDDEN", "PERMISSION_DENIED")

    return send


WAYS: dict[str, Send] = {
    "Publish": publishes(),
    "Publish, delayed": publishes(deliver_at_ms=0),
    "Publish to a queue": publish_to_queue,
    "BeginTransaction": begin,
    "Produce": produce,
    "ReplayDeadLetters": replay,
    "SendMessage": sends(d.NORMAL),
    "SendMessage, delayed": sends(d.DELAY),
    "SendMessage, transaction": sends(d.TRANSACTION),
}


@pytest.fixture
async def snode(tmp_path: Path) -> AsyncIterator[Snode]:
    """A cluster without access control: every caller may do what an admin may. Group `g` has both its topics."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        for name in TOPICS[:2]:
            await running.create_topic(name, read_queue_count=1)
        for group in ("g", "h"):
            await running.admin.PutGroup(namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name=group)))
        await running.topic("t")
        yield running


@pytest.mark.parametrize("topic", TOPICS)
async def test_no_client_sends_to_a_topic_of_a_group(snode: Snode, topic: str) -> None:
    """Every way of sending is refused, whether the topic exists or not. The error has the topic and the remedy."""
    queue = topic_pb2.Queue(topic=topic, enode="enode-0", queue_id=0)
    told = {way: await send(snode, topic, queue) for way, send in WAYS.items()}
    assert {way: text.partition(" ")[0] for way, text in told.items()} == dict.fromkeys(WAYS, "PERMISSION_DENIED")
    assert [way for way, text in told.items() if topic not in text or "ReplayDeadLetters" not in text] == []


async def test_routes_offer_no_queue_of_a_groups_topic_to_producers(snode: Snode) -> None:
    """A consumer of dead letters still gets the queues that it reads, in both protocols."""
    route = await snode.route("%DLQ%g")
    assert [len(route.readable_queues), len(route.writable_queues)] == [1, 0]
    for_write = producer_pb2.QueryRouteRequest(topic="%DLQ%g", for_write=True)
    assert (await refusal(snode.producer.QueryRoute(for_write))).startswith("PERMISSION_DENIED")
    stub = MessagingServiceStub(snode.cluster.channels.channel_to(snode.cluster.address))
    told = await stub.QueryRoute(s.QueryRouteRequest(topic=d.Resource(name="%DLQ%g")), metadata=WHO)
    assert [queue.permission for queue in told.message_queues] == [d.READ]


async def test_no_client_recalls_a_delayed_retry(snode: Snode) -> None:
    """The copy that waits for the group's back-off stays, although an admin can read its handle."""
    await snode.publish("t", b"x")
    queue = topic_pb2.Queue(topic="t", enode="enode-0", queue_id=0)
    nack = pull_pb2.NackMessagesRequest(group="g", queue=queue, offsets=[0], delay_level=18)
    await snode.consumer.NackMessages(nack)
    listed = await snode.admin.ListDelayedMessages(admin_pb2.ListDelayedMessagesRequest(topic="%RETRY%g"))
    (waiting,) = listed.messages
    recall = producer_pb2.RecallMessageRequest(recall_handle=waiting.recall_handle)
    assert (await refusal(snode.producer.RecallMessage(recall))).startswith("PERMISSION_DENIED")

"""Answers of operators' calls: the changes made, any legal bodies, and no internals of the cluster."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from ortoo.client import Client, Message, NotFound, connect
from ortoo.v1 import admin_pb2, consumer_pb2, dead_letter_pb2, namesrv_pb2, pop_pb2, producer_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.pull_group import PROMPT, send

LARGE = 4 << 20
METADATA = (("x-mq-client-id", "asks"), ("x-mq-language", "JAVA"))
SERVICES = [
    *(admin_pb2.DESCRIPTOR.services_by_name.values()),
    *(consumer_pb2.DESCRIPTOR.services_by_name.values()),
    *(producer_pb2.DESCRIPTOR.services_by_name.values()),
    *(dead_letter_pb2.DESCRIPTOR.services_by_name.values()),
    *(s.DESCRIPTOR.services_by_name.values()),
]
SHOWS_THE_INSIDE = {"DescribeCluster"}
"""Operators call this method to see the internals."""
PYTHON_WORDS = re.compile(r"Error\b|Exception|<class|Traceback|NoneType|object at 0x|\.py\b|\bself\b")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic one of one queue."""
    async with asyncio.timeout(90), open_cluster(tmp_path) as opened:
        await opened.create_topic("one", queues=1)
        yield opened


@pytest.fixture
async def mq(cluster: InProcessCluster) -> AsyncIterator[Client]:
    """The operator."""
    async with connect(cluster.address) as opened:
        yield opened


async def test_silence_switches_nothing_off(cluster: InProcessCluster, mq: Client) -> None:
    """PutGroup with a name alone, for a new group and a changed one; and one setting by its name."""
    async with grpc.aio.insecure_channel(cluster.address) as channel:
        stub = AdminServiceStub(channel)
        bare = namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name="g"))
        assert (await stub.PutGroup(bare)).group.consume_enabled
        await mq.admin.groups.update("g", consume_enabled=False, attempts_max=5)
        assert not (await stub.PutGroup(bare)).group.consume_enabled
        await mq.admin.groups.update("g", attempts_max=5)
        bare.fields.append("consume_enabled")
        bare.group.consume_enabled = True
        changed = (await stub.PutGroup(bare)).group
        assert (changed.consume_enabled, changed.attempts_max) == (True, 5)


async def test_answers_say_what_was_done_and_unknown_groups_are_not_found(mq: Client) -> None:
    """A reset returns offsets before and after; a clone creates its group. An idle group shows its topics."""
    for unknown in (
        mq.admin.describe_lag("mistyped", "one"),
        mq.admin.groups.describe("mistyped"),
        _letters(mq, "mistyped"),
    ):
        with pytest.raises(NotFound, match="mistyped"):
            await unknown
    await send(mq, range(10), "one")
    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        taken = 0
        while taken < 10:
            batch = await consumer.poll(15_000)
            assert batch is not None
            batch.ack()
            taken += len(batch)
        await consumer.commit()
    assert [one.topic for one in (await mq.admin.groups.describe("g")).progress] == ["one"]
    [back] = await mq.admin.groups.reset_offsets("g", "one", offset=4)
    assert (back.previous, back.offset, back.refused_offset) == (10, 4, -1)
    [left] = await mq.admin.groups.reset_offsets("g", "one", time_ms=-1)
    assert (left.previous, left.offset, left.refused_offset) == (4, 4, 10)
    [forced] = await mq.admin.groups.reset_offsets("g", "one", time_ms=-1, force=True)
    assert (forced.previous, forced.offset, forced.refused_offset) == (4, 10, -1)
    await mq.admin.groups.update("g", attempts_max=7)
    await mq.admin.groups.clone_offsets("g", "h", "one")
    assert (await mq.admin.groups.describe("h")).group.attempts_max == 7
    assert await _letters(mq, "g") == []


async def _letters(mq: Client, group: str) -> list[object]:
    return [one async for one in mq.admin.list_dead_letters(group)]


async def test_no_legal_body_makes_a_read_fail(cluster: InProcessCluster, mq: Client) -> None:
    """Searches, peeks, tails, readable pops and dead letters of bodies of 4 MiB, in several answers."""
    async with mq.producer("one") as producer:
        for number in range(4):
            await producer.send(Message(b"%d" % number * LARGE, keys=("k",)))
    found = await mq.admin.find_messages("one", key="k")
    assert [one.message.body[:1] for one in found.messages] == [b"3", b"2", b"1", b"0"]
    assert [one.message.body[:1] for one in await mq.admin.peek("one")] == [b"0", b"1", b"2", b"3"]
    tailed = [one.message.body[:1] async for one in mq.admin.tail("one", from_beginning=True, follow=False)]
    assert tailed == [b"0", b"1", b"2", b"3"]
    async with connect(cluster.address) as own:
        channel = own._connection.channel()
        popped = []
        for _ in range(4):
            request = pop_pb2.PopRequest(group="g", topic="one", messages_max=4, wait_ms=5_000, readable=True)
            answer = await ConsumerServiceStub(channel).Pop(request)
            popped += [one.body[:1] for batch in answer.batches for one in batch.messages]
            for batch in answer.batches:
                receipt = pop_pb2.LeaseReceipt(receipt_handle=batch.receipt_handle)
                await ConsumerServiceStub(channel).Nack(pop_pb2.NackRequest(receipts=[receipt], park=True))
            if len(popped) == 4:
                break
        assert sorted(popped) == [b"0", b"1", b"2", b"3"]
    assert len(await _letters(mq, "g")) == 4


async def test_no_answer_names_what_is_inside(cluster: InProcessCluster) -> None:
    """For every unary method, while enode and name server are down: no inner address, no Python.

    The same for an invalid request, which is refused before another process is called.
    """
    inner = [cluster.address_of(name) for name in ("enode-0", "namesrv-0")]
    for name in ("enode-0", "namesrv-0"):
        await cluster.close(name)
    async with grpc.aio.insecure_channel(cluster.address) as channel:
        calls = [
            _said(channel, method, request)
            for service in SERVICES
            for method in service.methods
            if not method.client_streaming and method.name not in SHOWS_THE_INSIDE
            for request in (_filled(method), GetMessageClass(method.input_type)())
        ]
        told = [words for words in await asyncio.gather(*calls) if words]
    assert len(told) > 60
    wrong = [words for words in told if PYTHON_WORDS.search(words) or any(address in words for address in inner)]
    assert wrong == []


def _filled(method: Any) -> Any:
    """A request that names a topic, a group and a queue in the fields that it has."""
    request: Any = GetMessageClass(method.input_type)()
    for field in method.input_type.fields:
        if field.name in ("topic", "group", "name", "producer_group") and field.message_type is None:
            setattr(request, field.name, "g" if "group" in field.name else "one")
        elif field.name in ("topic", "group") and not field.is_repeated:
            getattr(request, field.name).name = "g" if field.name == "group" else "one"
        elif field.name == "queue":
            request.queue.CopyFrom(topic_pb2.Queue(topic="one", enode="enode-0"))
        elif field.name == "message_queue":
            request.message_queue.topic.name = "one"
            request.message_queue.broker.name = "enode-0"
        elif field.name == "offsets" and field.is_repeated and field.message_type is None:
            request.offsets.append(0)
    if method.containing_service.name == "MessagingService" and method.name == "SendMessage":
        system = d.SystemProperties(message_id="i")
        request.messages.append(d.Message(topic=d.Resource(name="one"), body=b"b", system_properties=system))
    return request


async def _said(channel: grpc.aio.Channel, method: Any, request: Any) -> str:
    """The error text of a call: from gRPC's status, or from its answer."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    read = GetMessageClass(method.output_type).FromString
    opened: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = opened(path, request_serializer=type(request).SerializeToString, response_deserializer=read)
    try:
        if method.server_streaming:
            async with asyncio.timeout(60):
                return "".join([str(answer) async for answer in call(request, metadata=METADATA, timeout=8)])
        return str(await call(request, metadata=METADATA, timeout=8))
    except grpc.aio.AioRpcError as error:
        return "" if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else f"{path} {error.details()}"

"""No request, stream or peer ends or blocks a process; an honest client works beside hostile ones (G14)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.common.errors import Invalid
from ortoo.common.groups.handle_seal import HandleSeals, open_handle
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt
from ortoo.v1 import consumer_pb2, enode_pb2, producer_pb2, record_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

METADATA = (("x-mq-client-id", "hostile"), ("x-mq-language", "PYTHON"))
TOPIC, GROUP = Resource(name="t"), Resource(name="g")
YEARS_MS = 10 * 365 * 86_400_000
ENTRIES = 40
"""Number of acknowledgements that are sent to the enode together."""
NO_PROTO = b"\xff\xff\xff\xff"
Act = Callable[[InProcessCluster], Awaitable[None]]


async def far_delay_with_an_id(cluster: InProcessCluster) -> None:
    """A message with an application's id that is delayed by ten years."""
    message = record_pb2.Message(body=b"x", deliver_at_ms=cluster.clock.now_ms() + YEARS_MS)
    message.properties["DEDUP_ID"] = "chosen"
    stub = ProducerServiceStub(cluster.channels.channel_to(cluster.address))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Publish(producer_pb2.PublishRequest(topic="t", messages=[message]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def malformed(role: str, method: str) -> Act:
    """Bytes on a stream that are not a message."""

    async def act(cluster: InProcessCluster) -> None:
        async with grpc.aio.insecure_channel(cluster.address_of(role)) as channel:
            open_call: Any = channel.stream_stream(method)
            call: Any = open_call(iter([NO_PROTO]), metadata=METADATA)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                while await call.read() is not grpc.aio.EOF:
                    pass
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, refused.value.details()

    act.__name__ = f"malformed {method}"
    return act


async def topic_taken_away_from_a_push_session(cluster: InProcessCluster) -> None:
    """The topic of an open session is deleted and created again while messages are pushed."""
    channel = cluster.channels.channel_to(cluster.address)
    async with connect(cluster.address) as mq:
        await mq.admin.create_topic("short", queue_count=2)
        call: Any = ConsumerServiceStub(channel).Push()
        wanted = [consumer_pb2.Subscription(topic="short")]
        opening = consumer_pb2.OpenSession(group="short", subscriptions=wanted)
        await call.write(consumer_pb2.PushRequest(open=opening))
        await call.read()
        for _ in range(3):
            await mq.admin.delete_topic("short")
            await mq.admin.create_topic("short", queue_count=2)
        call.cancel()


async def two_incarnations_on_one_stream(cluster: InProcessCluster) -> None:
    """An Attach call that changes its identity."""
    stub = EnodeServiceStub(cluster.channels.channel_to(cluster.address_of("enode-0")))
    call: Any = stub.Attach(iter([enode_pb2.AttachRequest(incarnation=one) for one in ("a", "b")]))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        while await call.read() is not grpc.aio.EOF:
            pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def an_append_of_garbage(cluster: InProcessCluster) -> None:
    """Batches with wrong envelopes, and a valid one for a queue that does not exist."""
    stub = EnodeServiceStub(cluster.channels.channel_to(cluster.address_of("enode-0")))
    batch = record_pb2.SealedBatch()
    requests = [enode_pb2.AppendRequest(request_id=n, topic_id=1, queue_id=n, batch=batch) for n in range(5)]
    answers = [answer async for answer in stub.Append(iter(requests))]
    assert len(answers) == len(requests)
    assert all(answer.HasField("failure") for answer in answers)


HOSTILE: list[Act] = [
    far_delay_with_an_id,
    topic_taken_away_from_a_push_session,
    two_incarnations_on_one_stream,
    an_append_of_garbage,
    malformed("snode-0", "/ortoo.v1.ProducerService/Produce"),
    malformed("snode-0", "/ortoo.v1.ConsumerService/Push"),
    malformed("snode-0", "/ortoo.v1.SessionService/Connect"),
    malformed("snode-0", "/apache.rocketmq.v2.MessagingService/Telemetry"),
    malformed("enode-0", "/ortoo.v1.EnodeService/Append"),
    malformed("enode-0", "/ortoo.v1.EnodeService/FetchBatches"),
    malformed("enode-0", "/ortoo.v1.EnodeService/Attach"),
]


async def test_an_honest_client_goes_on_beside_hostile_ones(tmp_path: Path) -> None:
    """G14: after every attack both processes serve as before, and no honest message is lost or delayed for ever."""
    async with asyncio.timeout(120), open_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", queues=2)
        async with connect(cluster.address) as mq, mq.producer("t") as producer, mq.pop_consumer("g", "t") as consumer:
            for number, act in enumerate(HOSTILE):
                body = b"%d" % number
                await producer.send(Message(body))
                try:
                    await act(cluster)
                except BaseException as error:
                    error.add_note(f"in {act.__name__}")
                    raise
                message = await anext(aiter(consumer))
                assert message.body == body
                await message.ack()
        assert set(cluster.running) == {"namesrv-0", "enode-0", "snode-0"}


async def popped_handles(stub: MessagingServiceStub, count: int) -> AsyncIterator[str]:
    """The handles of this number of messages."""
    while count:
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=d.MessageQueue(topic=TOPIC, id=0, broker=d.Broker(name="enode-0")),
            batch_size=32,
            invisible_duration=Duration(seconds=60),
        )
        async for frame in stub.ReceiveMessage(request, metadata=METADATA, timeout=20):
            if frame.HasField("message"):
                count -= 1
                yield frame.message.system_properties.receipt_handle


def entries(handles: list[str]) -> s.AckMessageRequest:
    """An acknowledgement of these."""
    rows = [s.AckMessageEntry(message_id=str(n), receipt_handle=one) for n, one in enumerate(handles)]
    return s.AckMessageRequest(topic=TOPIC, group=GROUP, entries=rows)


def forged(handle: ReceiptHandle, seals: HandleSeals) -> Iterator[str]:
    """Handles with the cluster's seal that name impossible objects."""
    yield replace(handle, queue_id=999).encoded(seals)
    yield replace(handle, first_offset=-5).encoded(seals)
    yield replace(handle, topic_id=12345).encoded(seals)
    yield replace(handle, enode="nowhere").encoded(seals)


def without_utf8(handle: ReceiptHandle, seals: HandleSeals) -> str:
    """A handle whose enode's name is not a text, with a valid seal."""
    content = open_handle(seals, b"ortoo receipt", handle.encoded(seals), Invalid("it is none"))
    return seals.encode(b"ortoo receipt", content.replace(handle.enode.encode(), b"\xff" * len(handle.enode)))


async def test_one_forged_handle_refuses_nobody_elses(tmp_path: Path) -> None:
    """Acknowledgements are sent together but answered one by one, also if some of them are invalid."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", queues=1)
        async with connect(cluster.address) as mq, mq.producer("t") as producer:
            for number in range(ENTRIES):
                await producer.send(Message(b"%d" % number))
        stub = MessagingServiceStub(cluster.channels.channel_to(cluster.address))
        handles = [handle async for handle in popped_handles(stub, ENTRIES)]
        seals = await cluster.seals()
        first = read_receipt(handles[0], seals)
        good, wrong = handles[:-1], [*forged(first, seals), without_utf8(first, seals), "nonsense", ""]
        calls = [entries([one]) for one in (*wrong, *good, *wrong)]
        answers = await asyncio.gather(*(stub.AckMessage(call, metadata=METADATA) for call in calls))
        codes = [answer.entries[0].status.code for answer in answers]
        assert codes[len(wrong) : -len(wrong)] == [Code.OK] * len(good)
        assert Code.OK not in codes[: len(wrong)] + codes[-len(wrong) :]
        assert codes[0] == Code.NOT_FOUND
        assert Code.INTERNAL_SERVER_ERROR not in codes
        mixed = await stub.AckMessage(entries(["nonsense", handles[-1], without_utf8(first, seals)]), metadata=METADATA)
        assert [entry.status.code for entry in mixed.entries] == [
            Code.INVALID_RECEIPT_HANDLE, Code.OK, Code.INVALID_RECEIPT_HANDLE,
        ]  # fmt: skip
        assert mixed.status.code == Code.MULTIPLE_RESULTS

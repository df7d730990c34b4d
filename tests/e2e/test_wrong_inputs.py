"""Invalid input is refused by name, with a remedy; nothing is stored and no process dies (G11)."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ortoo.common.errors import AlreadyExists, Invalid, NotFound, OrtooError, OutOfRange, Unsupported
from ortoo.common.errors.status import error_of, rpc_errors
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX, Channels
from ortoo.common.records.batch import encode
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    failure_pb2,
    namesrv_pb2,
    producer_pb2,
    producer_pb2_grpc,
    record_pb2,
    topic_pb2,
)
from ortoo.verification.servers.processes import ProcessCluster, process_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOD = encode([b"good", b"batch"], now_ms=1)


@dataclasses.dataclass(frozen=True)
class Calls:
    """The cluster's methods, as a client in any language calls them."""

    channel: Any
    processes: ProcessCluster

    @property
    def admin(self) -> admin_pb2_grpc.AdminServiceStub:
        """The client for operators."""
        return admin_pb2_grpc.AdminServiceStub(self.channel)

    async def publish(self, *bodies: bytes, topic: str = "t", enode: str = "", queue_id: int = 0) -> None:
        """Send messages by the unary call."""
        messages = [record_pb2.Message(body=body) for body in bodies]
        request = producer_pb2.PublishRequest(topic=topic, messages=messages)
        if enode:
            request.queue.CopyFrom(topic_pb2.Queue(topic=topic, enode=enode, queue_id=queue_id))
        await producer_pb2_grpc.ProducerServiceStub(self.channel).Publish(request)

    async def produce(self, batch: SealedBatch, **queue: Any) -> None:
        """Send one batch by the stream."""
        call = producer_pb2_grpc.ProducerServiceStub(self.channel).Produce()
        where = topic_pb2.Queue(**{"topic": "t", "enode": "enode-0", "queue_id": 0, **queue})
        sealed = record_pb2.SealedBatch(**dataclasses.asdict(batch))
        await call.write(producer_pb2.ProduceRequest(request_id=1, queue=where, batch=sealed))
        raise_failure(await call.read())

    async def create(self, name: str, **fields: Any) -> None:
        """Create a topic."""
        await self.admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name=name, **fields))

    async def fetch(self, from_offset: int, **queue: Any) -> None:
        """Read a queue from an offset."""
        where = topic_pb2.Queue(**{"topic": "t", "enode": "enode-0", "queue_id": 0, **queue})
        stub = consumer_pb2_grpc.ConsumerServiceStub(self.channel)
        async for part in stub.Fetch(consumer_pb2.FetchRequest(queue=where, from_offset=from_offset)):
            raise_failure(part)

    async def push(self, *events: consumer_pb2.PushRequest) -> None:
        """Send these requests in a push session and read until it ends."""
        call = consumer_pb2_grpc.ConsumerServiceStub(self.channel).Push()
        for event in events:
            await call.write(event)
        await call.done_writing()
        while isinstance(answer := await call.read(), consumer_pb2.PushResponse):
            del answer

    async def raw(self, method: str, data: bytes) -> None:
        """Call a method with arbitrary bytes."""
        await self.channel.unary_unary(f"/ortoo.v1.{method}")(data)

    async def stored(self) -> tuple[list[str], list[int]]:
        """The names of all topics, and the number of messages in each queue of the topic."""
        topics = await self.admin.ListTopics(namesrv_pb2.ListTopicsRequest())
        described = await self.admin.DescribeTopic(admin_pb2.DescribeTopicRequest(name="t"))
        return [topic.name for topic in topics.topics], [queue.end_offset for queue in described.queues]


def raise_failure(answer: Any) -> None:
    """Raise the error in an item of a stream."""
    if answer.failure.kind != failure_pb2.FAILURE_KIND_UNSPECIFIED:
        raise error_of(answer.failure)


def changed(**fields: Any) -> SealedBatch:
    """The valid batch with a wrong field in its envelope."""
    return dataclasses.replace(GOOD, **fields)


def with_records(records: bytes) -> SealedBatch:
    """Arbitrary bytes in a valid envelope."""
    return changed(records=records, records_crc32c=crc32c(records))


def opened(**fields: Any) -> consumer_pb2.PushRequest:
    """The first request of a push session."""
    chosen = {"group": "g", "subscriptions": [consumer_pb2.Subscription(topic="t")], **fields}
    return consumer_pb2.PushRequest(open=consumer_pb2.OpenSession(**chosen))


def acknowledging(**fields: Any) -> consumer_pb2.PushRequest:
    """An acknowledgement of a message that was never delivered."""
    queue = topic_pb2.Queue(**{"topic": "t", "enode": "enode-0", "queue_id": 0, **fields})
    offset = consumer_pb2.CommittedOffset(queue=queue, offset=1, generation=77)
    return consumer_pb2.PushRequest(commit=consumer_pb2.Commit(offsets=[offset]))


Act = Callable[[Calls], Awaitable[None]]
Case = tuple[Act, type[OrtooError], Sequence[str]]
CASES: dict[str, Case] = {
    # sending
    "unknown topic": (lambda c: c.publish(b"x", topic="nowhere"), NotFound, ["nowhere", "create"]),
    "queue out of range": (lambda c: c.publish(b"x", enode="enode-0", queue_id=99), Invalid, ["99", "0 to 3"]),
    "unknown enode": (lambda c: c.publish(b"x", enode="nobody"), Invalid, ["nobody", "enode-0"]),
    "no messages": (lambda c: c.publish(), Invalid, ["messages"]),
    "empty body": (lambda c: c.publish(b"fine", b""), Invalid, ["messages[1].body"]),
    "body over the limit": (lambda c: c.publish(b"x" * ((4 << 20) + 1)), Invalid, ["messages[0].body"]),
    "message over the transport's limit": (lambda c: c.publish(b"x" * (MESSAGE_BYTES_MAX + 1)), OrtooError, ["larger"]),
    "too many messages": (lambda c: c.publish(*[b"x"] * 4097), Invalid, ["messages", "4096"]),
    "illegal topic name": (lambda c: c.publish(b"x", topic="a b"), OrtooError, ["a b"]),
    # sending batches
    "garbage batch": (lambda c: c.produce(with_records(b"\xff" * 50)), Invalid, ["batch"]),
    "empty batch": (lambda c: c.produce(with_records(b"")), Invalid, ["batch.records"]),
    "wrong checksum": (lambda c: c.produce(changed(records_crc32c=1)), Invalid, ["batch.records_crc32c", "again"]),
    "count that is not the batch's": (lambda c: c.produce(changed(count=3)), Invalid, ["count"]),
    "size that is not the batch's": (lambda c: c.produce(changed(body_inflated_bytes=1)), Invalid, ["body_inflated"]),
    "truncated batch": (lambda c: c.produce(with_records(GOOD.records[:-3])), Invalid, ["batch"]),
    "batch to an unknown queue": (lambda c: c.produce(GOOD, queue_id=4), Invalid, ["queue 4", "0 to 3"]),
    "batch to an unknown topic": (lambda c: c.produce(GOOD, topic="nowhere"), NotFound, ["nowhere"]),
    # topics
    "over-long topic name": (lambda c: c.create("n" * 128), Invalid, ["128", "127"]),
    "illegal new topic name": (lambda c: c.create("a/b"), Invalid, ["'/'", "letters"]),
    "empty topic name": (lambda c: c.create(""), Invalid, ["empty"]),
    "topic that exists": (lambda c: c.create("t", read_queue_count=9), AlreadyExists, ["topic t exists", "9"]),
    "too many queues": (lambda c: c.create("u", read_queue_count=1025), Invalid, ["1025", "1024"]),
    "placement on an unknown enode": (lambda c: c.create("u", enodes=["nobody"]), OrtooError, ["nobody", "enode-0"]),
    "deletion of an unknown topic": (
        lambda c: awaited(c.admin.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="nowhere"))),
        NotFound,
        ["nowhere"],
    ),
    "taking queues away": (
        lambda c: awaited(c.admin.UpdateTopic(namesrv_pb2.UpdateTopicRequest(name="t", read_queue_count=1))),
        OrtooError,
        ["read_queue_count"],
    ),
    # reading
    "read before the beginning": (lambda c: c.fetch(-1), Invalid, ["from_offset", "negative"]),
    "read beyond the end": (lambda c: c.fetch(1000), OutOfRange, ["1000"]),
    "read of an unknown queue": (lambda c: c.fetch(0, queue_id=99), Invalid, ["99"]),
    "session without a group": (lambda c: c.push(opened(group="")), Invalid, ["group"]),
    "session with an illegal group": (lambda c: c.push(opened(group="a b")), Invalid, ["a b"]),
    "session without subscriptions": (lambda c: c.push(opened(subscriptions=[])), Invalid, ["subscription"]),
    "session on an unknown topic": (
        lambda c: c.push(opened(subscriptions=[consumer_pb2.Subscription(topic="nowhere")])),
        NotFound,
        ["nowhere"],
    ),
    "session that does not begin with open": (lambda c: c.push(acknowledging()), Invalid, ["open"]),
    "lag in an unknown topic": (
        lambda c: awaited(c.admin.DescribeLag(admin_pb2.DescribeLagRequest(group="g", topic="nowhere"))),
        NotFound,
        ["nowhere"],
    ),
    # the protocol
    "garbage instead of a request": (
        lambda c: c.raw("ProducerService/Publish", b"\xff\xff"),
        Invalid,
        ["are not a request of", "Publish"],
    ),
    "unknown method": (lambda c: c.raw("ProducerService/Pubish", b""), Unsupported, ["Method not found"]),
    "unknown service": (lambda c: c.raw("Producer/Publish", b""), Unsupported, ["Method not found"]),
}


async def awaited(call: Awaitable[Any]) -> None:
    """Wait for a call whose answer does not matter."""
    await call


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Calls]:
    """One cluster of processes for all cases, with one topic and three messages."""
    folder: Path = tmp_path_factory.mktemp("wrong-inputs")
    async with process_cluster(folder) as started, Channels() as channels:
        calls = Calls(channels.channel_to(started.address), started)
        await calls.create("t", read_queue_count=4)
        await calls.publish(b"one", b"two", b"three")
        yield calls


@pytest.mark.parametrize("what", CASES)
async def test_wrong_input_is_refused_by_name(calls: Calls, what: str) -> None:
    """The error's class tells what to do, its text names the mistake; nothing is stored and all processes live."""
    act, kind, words = CASES[what]
    before = await calls.stored()
    with pytest.raises(kind) as caught, rpc_errors("snode"):
        await act(calls)
    said = str(caught.value)
    assert [word for word in words if word not in said] == [], said
    assert "defect" not in said
    assert await calls.stored() == before
    assert [role.folder.name for role in calls.processes.roles if not role.alive] == []


async def test_nothing_wrong_left_a_trace(calls: Calls) -> None:
    """After all of them the cluster works, and no process logged a defect."""
    await calls.publish(b"four")
    assert sum((await calls.stored())[1]) == 4
    assert "defect" not in calls.processes.logs()


async def test_acknowledgement_of_what_is_not_owned_moves_nothing(calls: Calls) -> None:
    """A session that acknowledges offsets of a queue or an assignment that is not its own changes no offset."""
    await calls.admin.PutGroup(namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name="g")))
    lag = admin_pb2.DescribeLagRequest(group="g", topic="t")
    before = await calls.admin.DescribeLag(lag)
    leaving = consumer_pb2.PushRequest(close=consumer_pb2.CloseSession())
    await calls.push(opened(), acknowledging(), acknowledging(queue_id=99), acknowledging(enode="nobody"), leaving)
    after = await calls.admin.DescribeLag(lag)
    assert [q.committed_offset for q in after.queues] == [q.committed_offset for q in before.queues]

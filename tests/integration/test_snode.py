"""The snode over gRPC, with a real enode behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.record_batch import encode_bodies, open_batch
from ortoo.snode.wire import batch_of, batch_to
from ortoo.v1 import admin_pb2, consumer_pb2, producer_pb2, record_pb2, topic_pb2
from tests.integration.push_client import PushClient
from tests.integration.snode_cluster import Cluster, cluster


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as it, asyncio.timeout(30):
        yield it


def publish(topic: str, *bodies: bytes, **fields: Any) -> producer_pb2.PublishRequest:
    return producer_pb2.PublishRequest(
        topic=topic, messages=[record_pb2.Message(body=body, **fields) for body in bodies]
    )


def batch_request(request_id: int, queue: topic_pb2.Queue, bodies: list[bytes], **how: Any) -> Any:
    return producer_pb2.ProduceRequest(
        request_id=request_id, queue=queue, batch=batch_to(encode_bodies(bodies, now_ms=1, **how))
    )


async def test_published_message_is_pushed_and_its_acknowledgement_lasts(running: Cluster) -> None:
    """What Publish stored reaches a member of a group, and after its acknowledgement the next member goes on behind."""
    topic = await running.topic("t")
    receipt = (await running.producer.Publish(publish("t", b"one", b"two"))).receipts
    assert [r.offset for r in receipt] == [0, 1]
    assert receipt[0].message_id == f"{topic.topic_id:016x}-e1-0-0"
    async with PushClient(running, "g", "t", from_first=True) as member:
        delivery = await member.delivery()
        assert open_batch(batch_of(delivery.batch)).bodies() == [b"one", b"two"]
        await member.acknowledge(delivery)
        assert (await member.event("acknowledged")).offsets[0].offset == 2
    await running.producer.Publish(publish("t", b"three"))
    async with PushClient(running, "g", "t", from_first=True) as member:
        assert (await member.delivery()).first_offset == 2
    lag = await running.admin.DescribeLag(admin_pb2.DescribeLagRequest(group="g", topic="t"))
    assert (lag.lag_messages, lag.queues[0].committed_offset) == (1, 2)


async def test_produced_batches_pass_untouched_and_answers_come_in_order(running: Cluster) -> None:
    """A stream of batches to two queues: bytes on the far side are the producer's, offsets are dense."""
    await running.topic("t", queues=2)
    queues = [topic_pb2.Queue(topic="t", enode="e1", queue_id=number) for number in (0, 1)]
    requests = [batch_request(n, queues[n % 2], [b"%d" % n] * 3) for n in range(20)]
    call = running.producer.Produce(iter(requests))
    answers = [answer async for answer in call]
    assert not any(answer.HasField("failure") for answer in answers)
    for parity in (0, 1):
        mine = [a for a in answers if a.request_id % 2 == parity]
        assert [a.request_id for a in mine] == list(range(parity, 20, 2))
        assert [a.first_offset for a in mine] == list(range(0, 30, 3))
    read = [r async for r in running.consumer.Fetch(consumer_pb2.FetchRequest(queue=queues[1]))]
    assert [r.batch.records for r in read] == [r.batch.records for r in requests[1::2]]


async def test_one_bad_batch_does_not_harm_its_neighbours(running: Cluster) -> None:
    """A damaged batch, an unknown topic and a queue out of range are each answered by name; the rest is stored."""
    await running.topic("t")
    queue = topic_pb2.Queue(topic="t", enode="e1")
    bad = batch_request(2, queue, [b"x"])
    bad.batch.records_crc32c ^= 1
    unknown = batch_request(3, topic_pb2.Queue(topic="nope", enode="e1"), [b"x"])
    outside = batch_request(4, topic_pb2.Queue(topic="t", enode="e1", queue_id=9), [b"x"])
    nowhere = batch_request(5, topic_pb2.Queue(topic="t", enode="e9"), [b"x"])
    garbage = batch_request(6, queue, [b"x"])
    garbage.batch.records = b"garbage"
    requests = [
        batch_request(1, queue, [b"a"]),
        bad,
        unknown,
        outside,
        nowhere,
        garbage,
        batch_request(7, queue, [b"b"]),
    ]
    answers = {answer.request_id: answer async for answer in running.producer.Produce(iter(requests))}
    assert (answers[1].first_offset, answers[7].first_offset) == (0, 1)
    fields = {number: answers[number].failure.field for number in range(2, 7)}
    assert fields[2] == "batch.records_crc32c"
    assert fields[3] == "topic"
    assert fields[4] == "queue.queue_id"
    assert fields[5] == "queue.enode"
    assert fields[6].startswith("batch.records")


async def test_unknown_topic_is_named_with_what_to_do(running: Cluster) -> None:
    """Publishing to a topic that does not exist is NotFound at once, and the name server is not asked each time."""
    for _ in range(5):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.producer.Publish(publish("nope", b"x"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert "ortoo topic create nope" in (refused.value.details() or "")
    assert running.names.get_topic_calls == 1


async def test_two_members_share_queues_and_a_leaver_hands_over(running: Cluster) -> None:
    """Two members own disjoint halves; when one leaves the other goes on at its acknowledged offsets (E-043, E-071)."""
    await running.topic("t", queues=4)
    async with PushClient(running, "g", "t", from_first=True) as first:
        assert len((await first.event("assignment")).queues) == 4
        async with PushClient(running, "g", "t", from_first=True) as second:
            mine, yours = await first.event("assignment"), await second.event("assignment")
            assert mine.generation == yours.generation
            assert sorted(q.queue_id for q in (*mine.queues, *yours.queues)) == [0, 1, 2, 3]
            target = yours.queues[0]
            request = publish("t", b"a", b"b")
            request.queue.CopyFrom(target)
            await running.producer.Publish(request)
            delivery = await second.delivery()
            await second.acknowledge(delivery)
        assert len((await first.event("assignment")).queues) == 4
        await running.producer.Publish(request)
        got = await first.delivery()
        assert (got.queue, got.first_offset) == (target, 2)


async def test_tags_are_filtered_and_offsets_still_advance(running: Cluster) -> None:
    """A member that wants one tag gets rows of that tag only; what it does not want moves its offset (E-077)."""
    await running.topic("t")
    queue = topic_pb2.Queue(topic="t", enode="e1")
    tags = ["A", "B", "A", "B"]
    requests = [batch_request(1, queue, [b"0", b"1", b"2", b"3"], tags=tags), batch_request(2, queue, [b"4"], tags="A")]
    assert len([a async for a in running.producer.Produce(iter(requests))]) == 2
    async with PushClient(running, "g", "t", tags="B", from_first=True) as member:
        delivery = await member.delivery()
        bodies = open_batch(batch_of(delivery.batch)).bodies()
        rows = memoryview(delivery.rows).cast("i").tolist() if delivery.rows else range(len(bodies))
        assert [bodies[row] for row in rows] == [b"1", b"3"]
        empty = await member.delivery()
        assert not empty.HasField("batch")
        assert empty.next_offset == 5


async def test_tail_shows_messages_as_text(running: Cluster) -> None:
    """Tail from the first message gives what was stored, by time, as text."""
    await running.topic("t", queues=2)
    for body in (b"one", b"two", b"three"):
        await running.producer.Publish(publish("t", body, tag="x"))
    tailed = [m async for m in running.admin.Tail(admin_pb2.TailRequest(topic="t", from_first=True))]
    assert [m.body_text for m in tailed] == ["one", "two", "three"]
    following = running.admin.Tail(admin_pb2.TailRequest(topic="t", from_first=True, follow=True, messages_max=4))
    for _ in range(3):
        await following.read()
    await running.producer.Publish(publish("t", b"four"))
    assert (await following.read()).body_text == "four"

"""The snode over gRPC, with a real name server and a real enode behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.records.batch import open_batch
from ortoo.v1 import admin_pb2, consumer_pb2
from tests.integration.push_client import PushClient
from tests.integration.snode_calls import Snode, batch_request, open_snode_cluster, queue


@pytest.fixture
async def snode(tmp_path: Path) -> AsyncIterator[Snode]:
    """One snode over one enode."""
    async with open_snode_cluster(tmp_path) as opened, asyncio.timeout(60):
        yield opened


async def test_published_message_is_pushed_and_its_acknowledgement_lasts(snode: Snode) -> None:
    """A published message reaches a consumer of a group; after the acknowledgement the next starts behind it."""
    topic = await snode.topic("t")
    receipts = await snode.publish("t", b"one", b"two")
    assert [r.offset for r in receipts] == [0, 1]
    assert receipts[0].message_id == f"{topic.topic_id:016x}-enode-0-0-0"
    async with PushClient(snode, "g", "t", from_beginning=True) as member:
        delivery = await member.delivery()
        assert open_batch(batch_of(delivery.batch)).bodies() == [b"one", b"two"]
        await member.acknowledge(delivery)
        assert (await member.event("committed")).offsets[0].offset == 2
    await snode.publish("t", b"three")
    async with PushClient(snode, "g", "t", from_beginning=True) as member:
        assert (await member.delivery()).first_offset == 2
    lag = await snode.admin.DescribeLag(admin_pb2.DescribeLagRequest(group="g", topic="t"))
    assert (lag.lag_messages, lag.queues[0].committed_offset) == (1, 2)


async def test_produced_batches_pass_untouched_and_answers_come_in_order(snode: Snode) -> None:
    """A stream of batches to two queues: the reader gets the producer's bytes, offsets are dense."""
    await snode.topic("t", queues=2)
    queues = [queue("t", number) for number in (0, 1)]
    requests = [batch_request(n, queues[n % 2], [b"%d" % n] * 3) for n in range(20)]
    answers = list((await snode.produce(*requests)).values())
    assert not any(answer.HasField("failure") for answer in answers)
    for parity in (0, 1):
        mine = [a for a in answers if a.request_id % 2 == parity]
        assert [a.request_id for a in mine] == list(range(parity, 20, 2))
        assert [a.first_offset for a in mine] == list(range(0, 30, 3))
    read = [r async for r in snode.consumer.Fetch(consumer_pb2.FetchRequest(queue=queues[1]))]
    assert [r.batch.records for r in read] == [r.batch.records for r in requests[1::2]]


async def test_one_bad_batch_does_not_harm_its_neighbours(snode: Snode) -> None:
    """A damaged batch, an unknown topic and a queue out of range are each answered by name; the rest is stored."""
    await snode.topic("t")
    here = queue("t")
    bad = batch_request(2, here, [b"x"])
    bad.batch.records_crc32c ^= 1
    unknown = batch_request(3, queue("nope"), [b"x"])
    outside = batch_request(4, queue("t", 9), [b"x"])
    nowhere = batch_request(5, queue("t", enode="enode-9"), [b"x"])
    garbage = batch_request(6, here, [b"x"])
    garbage.batch.records = b"garbage"
    requests = [
        batch_request(1, here, [b"a"]),
        bad,
        unknown,
        outside,
        nowhere,
        garbage,
        batch_request(7, here, [b"b"]),
    ]
    answers = await snode.produce(*requests)
    assert (answers[1].first_offset, answers[7].first_offset) == (0, 1)
    fields = {number: answers[number].failure.field for number in range(2, 7)}
    assert fields[2] == "batch.records_crc32c"
    assert fields[3] == "topic"
    assert fields[4] == "queue.queue_id"
    assert fields[5] == "queue.enode"
    assert fields[6].startswith("batch.records")


async def test_unknown_topic_is_named_with_what_to_do(snode: Snode) -> None:
    """Publishing to an unknown topic is NotFound at once and names the command that creates it."""
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await snode.publish("nope", b"x")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert "ortoo topic create nope" in (refused.value.details() or "")


async def test_two_members_share_queues_and_a_leaver_hands_over(snode: Snode) -> None:
    """Two consumers own disjoint halves; when one leaves the other resumes at its offsets (E-043, E-071)."""
    await snode.topic("t", queues=4)
    async with PushClient(snode, "g", "t", from_beginning=True) as first:
        assert len((await first.event("assignment")).queues) == 4
        async with PushClient(snode, "g", "t", from_beginning=True) as second:
            mine, yours = await first.event("assignment"), await second.event("assignment")
            assert mine.generation == yours.generation
            assert sorted(q.queue_id for q in (*mine.queues, *yours.queues)) == [0, 1, 2, 3]
            target = yours.queues[0]
            await snode.publish("t", b"a", b"b", queue=target)
            delivery = await second.delivery()
            await second.acknowledge(delivery)
        assert len((await first.event("assignment")).queues) == 4
        await snode.publish("t", b"c", queue=target)
        got = await first.delivery()
        assert (got.queue, got.first_offset) == (target, 2)


async def test_tags_are_filtered_and_offsets_still_advance(snode: Snode) -> None:
    """A consumer with a tag filter gets only rows of that tag; skipped rows move its offset (E-077)."""
    await snode.topic("t")
    here = queue("t")
    tags: list[str | None] = ["A", "B", "A", "B"]
    requests = [batch_request(1, here, [b"0", b"1", b"2", b"3"], tags=tags), batch_request(2, here, [b"4"], tags="A")]
    assert len(await snode.produce(*requests)) == 2
    async with PushClient(snode, "g", "t", tags="B", from_beginning=True) as member:
        delivery = await member.delivery()
        bodies = open_batch(batch_of(delivery.batch)).bodies()
        rows = memoryview(delivery.rows).cast("i").tolist() if delivery.rows else range(len(bodies))
        at = range(len(bodies)) if len(rows) == len(bodies) else rows
        assert ([bodies[row] for row in at], list(rows)) == ([b"1", b"3"], [1, 3])
        empty = await member.delivery()
        assert not empty.HasField("batch")
        assert empty.next_offset == 5


async def test_tail_shows_messages_as_text(snode: Snode) -> None:
    """Tail from the first message returns the stored messages, by time, as text."""
    await snode.topic("t", queues=2)
    for body in (b"one", b"two", b"three"):
        await snode.publish("t", body, tag="x")
    tailed = [m async for m in snode.admin.Tail(admin_pb2.TailRequest(topic="t", from_beginning=True))]
    assert [m.body_text for m in tailed] == ["one", "two", "three"]
    following = snode.admin.Tail(admin_pb2.TailRequest(topic="t", from_beginning=True, follow=True, messages_max=4))
    assert len([await following.read() for _ in range(3)]) == 3
    await snode.publish("t", b"four")
    fourth = await following.read()
    assert isinstance(fourth, admin_pb2.TailResponse)
    assert fourth.body_text == "four"

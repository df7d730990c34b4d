"""Guarantees of an enode's FetchBatches stream and offset calls to snodes."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.errors import Invalid, NotFound, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.records.batch import encode
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pb2_grpc, failure_pb2
from ortoo.verification.servers.lone_enode import SingleEnode, append_batches, append_request, open_single_enode, topic

TOPIC = 7
BATCH = encode([b"a" * 100] * 10, now_ms=1)


async def store(enode: SingleEnode, count: int, queue_id: int = 0) -> None:
    """Append the batch `count` times."""
    call = enode.stub.Append()
    for number in range(count):
        await call.write(append_request(number, TOPIC, queue_id, BATCH))
    await call.done_writing()
    assert [a.HasField("failure") async for a in call] == [False] * count


def read(request_id: int, from_offset: int, **fields: Any) -> pb.FetchBatchesRequest:
    """A read request for queue 0."""
    return pb.FetchBatchesRequest(request_id=request_id, topic_id=TOPIC, from_offset=from_offset, **fields)


async def answer(call: Any) -> pb.FetchBatchesResponse:
    """The next answer of a stream."""
    async with asyncio.timeout(60):
        response: pb.FetchBatchesResponse = await call.read()
    return response


async def test_batches_come_back_as_they_were_sent(tmp_path: Path) -> None:
    """The bytes, the checksum and the counts are the producer's; offsets are consecutive. The byte limit is kept."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 20)
        call = enode.stub.FetchBatches()
        offset = 0
        batches: list[pb.StoredBatch] = []
        while offset < 200:
            await call.write(read(offset, offset, bytes_max=4000))
            part = await answer(call)
            assert part.request_id == offset
            assert part.end_offset == 200
            assert sum(len(b.batch.records) for b in part.batches) <= 4000
            batches += part.batches
            offset = part.next_offset
        assert [b.first_offset for b in batches] == list(range(0, 200, 10))
        assert {b.batch.records for b in batches} == {BATCH.records}
        assert {(b.batch.records_crc32c, b.batch.count) for b in batches} == {(BATCH.records_crc32c, 10)}


async def test_read_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    """An offset in the middle of a batch is answered with that batch, which starts before it."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 2)
        call = enode.stub.FetchBatches()
        await call.write(read(1, 13))
        assert (await answer(call)).batches[0].first_offset == 10


async def test_waiting_read_is_woken_by_the_next_batch(tmp_path: Path) -> None:
    """A read at the end waits while other reads of the stream are answered; it is answered at the next append."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 1)
        call = enode.stub.FetchBatches()
        await call.write(read(1, 10, wait_ms=60_000))
        await call.write(read(2, 0))
        assert (await answer(call)).request_id == 2
        await store(enode, 1)
        woken = await answer(call)
        assert (woken.request_id, woken.batches[0].first_offset, woken.next_offset) == (1, 10, 20)


async def test_read_at_the_end_without_waiting_is_empty(tmp_path: Path) -> None:
    """At the end of a queue the answer has no batches, and the offset to continue at."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call = enode.stub.FetchBatches()
        for wait_ms in (0, 1):
            await call.write(read(1, 0, wait_ms=wait_ms))
            empty = await answer(call)
            assert (len(empty.batches), empty.next_offset, empty.end_offset) == (0, 0, 0)
            assert not empty.HasField("failure")


async def test_read_outside_the_queue_names_its_range(tmp_path: Path) -> None:
    """Before 0 and beyond the end are OUT_OF_RANGE with the stored range, and the stream stays open."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 1)
        call = enode.stub.FetchBatches()
        for wrong in (-1, 11, 1 << 60):
            await call.write(read(1, wrong, wait_ms=60_000))
            refused = await answer(call)
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_OUT_OF_RANGE
            assert (refused.begin_offset, refused.end_offset) == (0, 10)


async def test_reads_too_many_are_refused_one_by_one(tmp_path: Path) -> None:
    """Of 8,100 waiting reads on one stream 100 are refused as overloaded; the others still wait."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call = enode.stub.FetchBatches()
        for number in range(8_100):
            await call.write(read(number, 0, wait_ms=60_000))
        refused = [await answer(call) for _ in range(100)]
        assert {r.failure.kind for r in refused} == {failure_pb2.FAILURE_KIND_OVERLOADED}
        assert {r.request_id for r in refused} == set(range(8_000, 8_100))
        await store(enode, 1)
        woken = [await answer(call) for _ in range(8_000)]
        assert sorted(w.request_id for w in woken) == list(range(8_000))


async def test_peer_that_does_not_listen_costs_bounded_memory(tmp_path: Path) -> None:
    """500 reads of 1 MiB whose answers are not read: the enode reads at most 32 MiB ahead (G13)."""
    big = encode([b"z" * 1000] * 1000, now_ms=1)
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await enode.running.store.append(TOPIC, 0, big)
        fetches_before = enode.running.store.describe().counters["fetches"]
        call = enode.stub.FetchBatches()
        for number in range(500):
            await call.write(read(number, 0))
        first = await answer(call)
        assert first.batches[0].batch.count == 1000
        fetches = enode.running.store.describe().counters["fetches"] - fetches_before
        assert fetches < 100
        rest = [await answer(call) for _ in range(499)]
        assert {len(r.batches) for r in rest} == {1}


async def test_stop_ends_waiting_reads(tmp_path: Path) -> None:
    """A stop does not wait for waiting reads; their stream ends with OK."""
    async with Channels() as channels:
        async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
            call = enode_pb2_grpc.EnodeServiceStub(channels.channel_to(enode.running.address)).FetchBatches()
            await call.write(read(1, 0, wait_ms=60_000))
            await call.write(read(2, 0))
            assert (await answer(call)).request_id == 2
        assert await call.read() is grpc.aio.EOF
        assert (await call.code()) is grpc.StatusCode.OK


async def test_offsets_are_kept_per_group(tmp_path: Path) -> None:
    """A commit is there after a restart (G10); a group without one has none. A smaller one replaces it."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        for queue_id in (0, 3):
            await append_batches(enode.running.address, TOPIC, encode([b"x"] * 9, now_ms=1), 1, queue_id=queue_id)
        offsets = [pb.QueueOffset(queue_id=0, offset=5), pb.QueueOffset(queue_id=3, offset=7)]
        await enode.stub.CommitOffsets(pb.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=offsets))
        smaller = [pb.QueueOffset(queue_id=3, offset=6)]
        await enode.stub.CommitOffsets(pb.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=smaller))
    async with open_single_enode(tmp_path) as enode:
        for group, expected in (("g", {0: 5, 3: 6}), ("h", {})):
            found = await enode.stub.QueryOffsets(pb.QueryOffsetsRequest(topic_id=TOPIC, group=group))
            assert {o.queue_id: o.offset for o in found.offsets} == expected


WRONG_COMMITS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no group": ({"group": ""}, Invalid, "group"),
    "illegal group": ({"group": "a b"}, Invalid, "group"),
    "no offsets": ({"offsets": []}, Invalid, "offsets"),
    "a queue twice": ({"offsets": [pb.QueueOffset(offset=1), pb.QueueOffset(offset=2)]}, Invalid, "offsets"),
    "negative": ({"offsets": [pb.QueueOffset(offset=-1)]}, Invalid, "offset"),
    "unknown queue": ({"offsets": [pb.QueueOffset(queue_id=4, offset=1)]}, Unavailable, ""),
    "unknown topic": ({"topic_id": 99}, Unavailable, ""),
}


@pytest.mark.parametrize("what", WRONG_COMMITS)
async def test_wrong_commit_is_refused_by_field(tmp_path: Path, what: str) -> None:
    """A wrong commit is a named error and changes nothing."""
    change, kind, field = WRONG_COMMITS[what]
    request = {"topic_id": TOPIC, "group": "g", "offsets": [pb.QueueOffset(offset=1)], **change}
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        with pytest.raises(kind) as caught, rpc_errors("enode"):
            await enode.stub.CommitOffsets(pb.CommitOffsetsRequest(**request))
        assert field in caught.value.field  # type: ignore[attr-defined]
        assert enode.running.store.offsets.of(TOPIC, "g") == {}


async def test_deleted_topic_is_gone_and_its_successor_starts_empty(tmp_path: Path) -> None:
    """A recreated topic has a new id and no messages; the old id is unknown."""
    async with open_single_enode(tmp_path, topic(TOPIC, "t")) as enode:
        await store(enode, 1)
        await enode.set_topics(topic(8, "t", version=3), deleted=("t",), due_topic_ids=[TOPIC], version=3)
        described = await enode.stub.DescribeQueues(pb.DescribeQueuesRequest(topic_id=8))
        assert [q.end_offset for q in described.queues] == [0, 0, 0, 0]
        with pytest.raises((NotFound, Unavailable)), rpc_errors("enode"):
            await enode.stub.DescribeQueues(pb.DescribeQueuesRequest(topic_id=TOPIC))
        assert [c.topic_id for c in enode.running.store.topics()] == [8]


async def test_directory_that_lost_its_data_deletes_nothing(tmp_path: Path) -> None:
    """A snapshot without a topic deletes nothing, whether it is older or newer than the enode's last one."""
    async with open_single_enode(tmp_path, topic(TOPIC, "t", version=50)) as enode:
        await store(enode, 1)
        await enode.set_topics(snapshot=True, version=1)
        assert [c.topic_id for c in enode.running.store.topics()] == [TOPIC]
        await enode.set_topics(topic(9, "other", version=51), snapshot=True, version=60)
        assert sorted(c.topic_id for c in enode.running.store.topics()) == [TOPIC, 9]


async def test_time_finds_an_offset(tmp_path: Path) -> None:
    """FindOffset gives the first message stored at or after a time, and the end when there is none."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 2)
        for stored_at_ms, expected in ((0, 0), (1 << 50, 20)):
            found = await enode.stub.FindOffset(pb.FindOffsetRequest(topic_id=TOPIC, stored_at_ms=stored_at_ms))
            assert found.offset == expected

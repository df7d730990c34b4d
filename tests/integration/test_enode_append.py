"""Guarantees of an enode's Append stream to snodes."""

import asyncio
import dataclasses
from pathlib import Path

import grpc
import pytest

from ortoo.common.grpc.channels import Channels
from ortoo.common.records.batch import encode
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import enode_pb2, enode_pb2_grpc, failure_pb2
from ortoo.verification.servers.lone_enode import append_request, open_single_enode, topic

TOPIC = 7


def batch_of(*bodies: bytes) -> SealedBatch:
    """A batch of these bodies."""
    return encode(bodies, now_ms=1)


async def answers_to(call: object, count: int) -> list[enode_pb2.AppendResponse]:
    """The next answers of a stream."""
    async with asyncio.timeout(60):
        return [await call.read() for _ in range(count)]  # type: ignore[attr-defined]


async def test_answers_of_one_queue_come_in_order_with_dense_offsets(tmp_path: Path) -> None:
    """Of 400 batches in flight over 4 queues each queue's answers come in order and its offsets leave no gap (G3)."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call = enode.stub.Append()
        batch = batch_of(b"a", b"b", b"c")
        for number in range(400):
            await call.write(append_request(number, TOPIC, number % 4, batch))
        answers = await answers_to(call, 400)
        for queue in range(4):
            mine = [a for a in answers if a.request_id % 4 == queue]
            assert [a.request_id for a in mine] == sorted(a.request_id for a in mine)
            assert [a.first_offset for a in mine] == [3 * n for n in range(100)]
        assert {a.flush_mode for a in answers} == {enode_pb2.FLUSH_MODE_SYNC}


async def test_refused_item_leaves_the_stream_and_its_order(tmp_path: Path) -> None:
    """A bad batch between good ones is answered in its turn with a Failure, and nothing of it is stored (G11)."""
    good = batch_of(b"good")
    bad = dataclasses.replace(good, records_crc32c=good.records_crc32c ^ 1)
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call = enode.stub.Append()
        for number in range(30):
            await call.write(append_request(number, TOPIC, 0, bad if number % 3 == 1 else good))
        await call.done_writing()
        answers = [answer async for answer in call]
        assert [a.request_id for a in answers] == list(range(30))
        refused = [a for a in answers if a.HasField("failure")]
        assert [a.request_id for a in refused] == list(range(1, 30, 3))
        assert {(a.failure.kind, a.failure.field) for a in refused} == {
            (failure_pb2.FAILURE_KIND_INVALID, "batch.records_crc32c")
        }
        assert enode.running.store.describe_queues(TOPIC)[0].end_offset == 20


REFUSED = {
    "empty": ({"records": b"", "records_crc32c": 0}, "batch.records"),
    "count 0": ({"count": 0}, "batch.count"),
    "too many": ({"count": 5000}, "batch.count"),
    "inflates too far": ({"body_inflated_bytes": 5 << 20}, "batch.body_inflated_bytes"),
    "garbage": ({"records": b"\xff" * 100}, "batch.records_crc32c"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_wrong_batch_is_refused_by_field(tmp_path: Path, what: str) -> None:
    """A batch with a wrong envelope is Invalid, naming the field, and nothing is stored."""
    change, field = REFUSED[what]
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call = enode.stub.Append()
        await call.write(append_request(1, TOPIC, 0, dataclasses.replace(batch_of(b"x", b"y"), **change)))  # type: ignore[arg-type]
        (answer,) = await answers_to(call, 1)
        assert answer.failure.kind == failure_pb2.FAILURE_KIND_INVALID
        assert answer.failure.field == field
        assert answer.failure.message
        assert enode.running.store.describe_queues(TOPIC)[0].end_offset == 0


async def test_topic_that_is_just_being_created_is_waited_for(tmp_path: Path) -> None:
    """Appends that arrive before the name server's watch event wait for it, keep their order, and are stored."""
    async with open_single_enode(tmp_path) as enode:
        call = enode.stub.Append()
        for number in range(20):
            await call.write(append_request(number, TOPIC, 0, batch_of(b"%d" % number)))
        await enode.set_topics(topic(TOPIC))
        await call.write(append_request(20, TOPIC, 0, batch_of(b"20")))
        answers = await answers_to(call, 21)
        assert [a.first_offset for a in answers] == list(range(21))


async def test_unknown_topic_does_not_hold_up_others(tmp_path: Path) -> None:
    """While one item waits in vain for its topic, others are stored; without a name server it is not NotFound."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call = enode.stub.Append()
        await call.write(append_request(1, 99, 0, batch_of(b"x")))
        await call.write(append_request(2, TOPIC, 9, batch_of(b"x")))
        await call.write(append_request(3, TOPIC, 0, batch_of(b"x")))
        first, second, third = await answers_to(call, 3)
        assert first.request_id == 3
        assert {second.request_id, third.request_id} == {1, 2}
        assert {a.failure.kind for a in (second, third)} == {failure_pb2.FAILURE_KIND_UNAVAILABLE}
        assert "no name server answers" in second.failure.message


async def test_everything_read_before_a_stop_is_answered(tmp_path: Path) -> None:
    """A draining server answers the requests that it has begun to store and then ends the stream with OK."""
    async with Channels() as channels:
        async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
            call = enode_pb2_grpc.EnodeServiceStub(channels.channel_to(enode.running.address)).Append()
            for number in range(50):
                await call.write(append_request(number, TOPIC, 0, batch_of(b"x" * 1000)))
            answers = await answers_to(call, 1)
        while isinstance(answer := await call.read(), enode_pb2.AppendResponse):
            answers.append(answer)
        assert await call.code() is grpc.StatusCode.OK
        assert [a.request_id for a in answers] == list(range(len(answers)))
    async with open_single_enode(tmp_path) as again:
        assert again.running.store.describe_queues(TOPIC)[0].end_offset == len(answers)


async def test_idempotent_retry_answers_the_first_place(tmp_path: Path) -> None:
    """The same batch of the same producer sent again on another stream is stored once (G4)."""
    batch = dataclasses.replace(batch_of(b"once"), producer_id=5)
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        places = []
        for _ in range(3):
            call = enode.stub.Append()
            await call.write(append_request(1, TOPIC, 0, batch))
            places += [a.first_offset for a in await answers_to(call, 1)]
            call.cancel()
        assert places == [0, 0, 0]
        assert enode.running.store.describe_queues(TOPIC)[0].end_offset == 1

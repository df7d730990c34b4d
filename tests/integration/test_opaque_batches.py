"""A batch is the same bytes at its producer, on the disk and at every reader."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import ConsumerSettings, Message, ProducerSettings, connect
from ortoo.common.grpc.bulk_calls import (
    APPEND_REQUEST,
    FETCH_BATCHES_RESPONSE,
    FETCH_RESPONSE,
    PRODUCE_REQUEST,
    PUSH_RESPONSE,
)
from ortoo.common.grpc.bulk_field import BULK_BYTES_MIN, BulkField, BulkMessage
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import consumer_pb2, enode_pb2, producer_pb2
from ortoo.verification.runs.made_batches import record_sealed_batches
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

MIB = 1 << 20


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t")
        yield opened


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_producers_bytes_are_those_on_disk_and_at_readers(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """By hash: small and large batches, bare bodies and full messages, compressed and not. Pushed and fetched."""
    made = record_sealed_batches(monkeypatch)
    rich = [Message(b"%d" % n * 50, f"tag-{n % 3}", (f"key-{n}",), properties={"n": str(n)}) for n in range(400)]
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        async with mq.producer("t", ProducerSettings(codec=codec)) as producer:
            for messages in ([b"small"], [sha256(b"%d" % n).digest() * 4 for n in range(4000)], rich):
                await (await producer.send_many(messages))
        sent = sorted(hash_of(batch) for batch in made)
        pushed: list[str] = []
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
            async for batch in consumer.batches():
                pushed.append(hash_of(batch.sealed))
                batch.ack()
                if len(pushed) == len(sent):
                    break
        described = await mq.admin.describe_topic("t")
        fetched = [hash_of(batch.sealed) for item in described.queues async for batch in mq.fetch(item.queue)]
    assert max(len(batch.records) for batch in made) > BULK_BYTES_MIN
    assert sorted(pushed) == sorted(fetched) == sent
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > MIB]
    assert all(any(batch.records in data for data in files) for batch in made)


def hash_of(batch: SealedBatch) -> str:
    """The hash of a batch's bytes."""
    return sha256(batch.records).hexdigest()


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (PRODUCE_REQUEST, producer_pb2.ProduceRequest(request_id=1)),
        (APPEND_REQUEST, enode_pb2.AppendRequest(request_id=1)),
        (FETCH_BATCHES_RESPONSE, enode_pb2.FetchBatchesResponse(batches=[enode_pb2.StoredBatch(first_offset=1)])),
        (PUSH_RESPONSE, consumer_pb2.PushResponse(delivery=consumer_pb2.Delivery(first_offset=1))),
        (FETCH_RESPONSE, consumer_pb2.FetchResponse(first_offset=1)),
    ],
)
def test_each_hop_makes_one_copy_to_send_and_one_to_receive(field: BulkField, message: Any) -> None:
    """Measured in allocated bytes: the copies that the design allows, and no others."""
    records = b"r" * (4 * MIB)
    data, written = allocated(lambda: field.write(BulkMessage(message, (records,))))
    read, received = allocated(lambda: field.read(data))
    assert list(read.bulks) == [records]
    for size in (written, received):
        assert 4 * MIB <= size < 4.1 * MIB


def allocated(step: Any) -> tuple[Any, int]:
    """The result of a step, and the largest number of bytes that Python had allocated for it."""
    tracemalloc.start()
    try:
        result = step()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

"""An idle stream, as most streams are, holds no memory of the messages that it carried."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.channels import Channels
from ortoo.common.records.batch import encode
from ortoo.v1 import admin_pb2_grpc, consumer_pb2, enode_pb2, namesrv_pb2, producer_pb2, record_pb2, topic_pb2
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from tests.e2e.many_sessions import memory_bytes

WARMING, STREAMS, BODY_BYTES = 5, 30, 2 << 20
GROWN_BYTES_MAX = STREAMS * BODY_BYTES // 2
"""If one copy of the last message stayed with each stream, memory would be twice this; further copies add to it."""
QUEUE = topic_pb2.Queue(topic="t", enode="enode-0")
BATCH = encode([bytes(range(256)) * (BODY_BYTES // 256)], now_ms=1)
SEALED = record_pb2.SealedBatch(
    records_crc32c=BATCH.records_crc32c, count=BATCH.count, body_inflated_bytes=BATCH.body_inflated_bytes
)
Way = Callable[[Channels, ProcessCluster, int, int], Awaitable[Any]]
"""Opens a stream, sends a batch through it, and leaves it open; the number makes it another client's."""


async def produce(channels: Channels, cluster: ProcessCluster, topic_id: int, number: int) -> Any:
    """To a snode."""
    call = bulk_calls.produce(channels.channel_to(cluster.address))
    await call.write(BulkMessage(producer_pb2.ProduceRequest(queue=QUEUE, batch=SEALED), (BATCH.records,)))
    assert not (await call.read()).HasField("failure")
    return call


async def append(channels: Channels, cluster: ProcessCluster, topic_id: int, number: int) -> Any:
    """To an enode."""
    call = bulk_calls.append(channels.channel_to(cluster.enode.address))
    await call.write(BulkMessage(enode_pb2.AppendRequest(topic_id=topic_id, batch=SEALED), (BATCH.records,)))
    assert not (await call.read()).HasField("failure")
    return call


async def fetch_batches(channels: Channels, cluster: ProcessCluster, topic_id: int, number: int) -> Any:
    """From an enode."""
    call = bulk_calls.fetch_batches(channels.channel_to(cluster.enode.address))
    await call.write(enode_pb2.FetchBatchesRequest(topic_id=topic_id, bytes_max=1))
    assert len((await call.read()).bulks) == 1
    return call


async def push(channels: Channels, cluster: ProcessCluster, topic_id: int, number: int) -> Any:
    """From a snode, to a session."""
    call = bulk_calls.push(channels.channel_to(cluster.address))
    wanted = [consumer_pb2.Subscription(topic="t")]
    opening = consumer_pb2.OpenSession(
        group=f"g{number}", subscriptions=wanted, start_from=consumer_pb2.START_FROM_FIRST
    )
    await call.write(consumer_pb2.PushRequest(open=opening))
    await call.write(consumer_pb2.PushRequest(credit=consumer_pb2.Credit(messages=1, bytes=64 << 20)))
    while not (await call.read()).message.HasField("delivery"):
        pass
    return call


async def follow(channels: Channels, cluster: ProcessCluster, topic_id: int, number: int) -> Any:
    """From a snode, to a reader without a group."""
    call = bulk_calls.fetch(channels.channel_to(cluster.address), consumer_pb2.FetchRequest(queue=QUEUE, follow=True))
    assert len((await call.read()).bulks) == 1
    return call


@pytest.mark.parametrize("way", [produce, append, fetch_batches, push, follow])
async def test_an_idle_stream_holds_nothing_of_what_it_carried(way: Way, tmp_path: Path) -> None:
    """G17: a batch passes through each of many streams, which stay open. Neither role's memory grows with them."""
    environ: dict[str, dict[str, object]] = {
        "snode": {"LOG_LEVEL": "error"},
        "enode": {"LOG_LEVEL": "error", "STORE_RECENT_BYTES": 1 << 20},
    }
    async with asyncio.timeout(280), process_cluster(tmp_path, environ=environ) as cluster, Channels() as channels:
        admin = admin_pb2_grpc.AdminServiceStub(channels.channel_to(cluster.address))
        created = await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", read_queue_count=1))
        topic_id = created.topic.topic_id
        calls = [await produce(channels, cluster, topic_id, 0)]
        calls += [await way(channels, cluster, topic_id, number) for number in range(WARMING)]
        pids = {"snode": cluster.snode.pid, "enode": cluster.enode.pid}
        before_bytes = {role: memory_bytes(pid) for role, pid in pids.items()}
        calls += [await way(channels, cluster, topic_id, WARMING + number) for number in range(STREAMS)]
        grown_bytes = {role: memory_bytes(pid) - before_bytes[role] for role, pid in pids.items()}
        for call in calls:
            call.cancel()
        assert max(grown_bytes.values()) < GROWN_BYTES_MAX, grown_bytes

"""Enodes and name servers whose callers do not read stay within their memory, and serve the callers that do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX, Channels
from ortoo.v1 import (
    admin_pb2_grpc,
    enode_pb2,
    enode_pb2_grpc,
    namesrv_pb2,
    namesrv_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
    record_pb2,
)
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from tests.e2e.many_sessions import memory_bytes

BUDGET_BYTES = 48 << 20
SLACK_BYTES = 96 << 20
"""For freed buffers, received requests and caches, which are counted elsewhere.

Beside busy cores 25 to 125 MiB are used in all; unbounded it would be 3 GiB.
"""
STREAMS, CALLS_A_CHANNEL = 100, 20
"""A server with a small budget accepts 32 connections from one address, including those of the cluster."""
STORED, BODY_BYTES = 32, 512 << 10
TOPICS, WATCHES = 300, 300
OF_CLIENT = "Internal error from Core"
"""The error of gRPC's own client for a call that was refused while it wrote; the server's text is lost then."""
Calls = list[Any]


@contextlib.asynccontextmanager
async def deaf_calls(address: str, count: int, begin: Callable[[Any], Awaitable[Any]]) -> AsyncIterator[Calls]:
    """Open `count` calls with `begin` on connections of their own, and read none of them."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    async with contextlib.AsyncExitStack() as stack:
        count_channels = range(-(-count // CALLS_A_CHANNEL))
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options)) for _ in count_channels
        ]
        yield [await begin(channels[number % len(channels)]) for number in range(count)]


async def refusal_of(call: Any) -> str:
    """The error of a call that was not read; "" if it is still open."""
    return "" if not call.done() else str(await call.details())


async def stored(cluster: ProcessCluster, channels: Channels) -> int:
    """Store large messages; returns their topic's id."""
    admin = admin_pb2_grpc.AdminServiceStub(channels.channel_to(cluster.address))
    created = await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name="flood", read_queue_count=1))
    producing = producer_pb2_grpc.ProducerServiceStub(channels.channel_to(cluster.address))
    for _ in range(STORED):
        message = record_pb2.Message(body=bytes(BODY_BYTES))
        await producing.Publish(producer_pb2.PublishRequest(topic="flood", messages=[message]))
    return int(created.topic.topic_id)


async def test_an_enodes_unread_streams_cost_bounded_memory(tmp_path: Path) -> None:
    """G17: streams of reads whose answers are not read. An honest snode's reads and appends continue."""
    environ = {"enode": {"LOG_LEVEL": "error", "MEMORY_BUDGET_BYTES": BUDGET_BYTES, "STORE_RECENT_BYTES": 1 << 20}}
    async with asyncio.timeout(280), process_cluster(tmp_path, environ=environ) as cluster, Channels() as channels:
        topic_id = await stored(cluster, channels)
        pid, honest = cluster.enode.pid, enode_pb2_grpc.EnodeServiceStub(channels.channel_to(cluster.enode.address))
        before_bytes = largest_bytes = memory_bytes(pid)

        async def begin(channel: grpc.aio.Channel) -> Any:
            nonlocal largest_bytes
            call: Any = enode_pb2_grpc.EnodeServiceStub(channel).FetchBatches()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for number in range(8):
                    await call.write(
                        enode_pb2.FetchBatchesRequest(request_id=number, topic_id=topic_id, bytes_max=4 << 20)
                    )
            largest_bytes = max(largest_bytes, memory_bytes(pid))
            return call

        async with deaf_calls(cluster.enode.address, STREAMS, begin):
            answered = 0
            while answered < 20:
                answered += await is_read(honest, topic_id)
                await stored_one_more(cluster, channels)
                largest_bytes = max(largest_bytes, memory_bytes(pid))
        assert largest_bytes - before_bytes < BUDGET_BYTES + SLACK_BYTES
        assert cluster.enode.alive


async def is_read(honest: enode_pb2_grpc.EnodeServiceStub, topic_id: int) -> bool:
    """Read once; return whether something came. While memory is short the read, or the whole call, is refused."""
    reading: Any = honest.FetchBatches()
    try:
        await reading.write(enode_pb2.FetchBatchesRequest(topic_id=topic_id, bytes_max=1 << 20))
        answer: Any = await reading.read()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        code, details = await reading.code(), await reading.details() or ""
        if details != OF_CLIENT:
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "memory_budget_bytes" in details
        return False
    finally:
        reading.cancel()
    assert answer.batches or "memory_budget_bytes" in answer.failure.message, answer
    return bool(answer.batches)


async def stored_one_more(cluster: ProcessCluster, channels: Channels) -> None:
    """Send one small message."""
    producing = producer_pb2_grpc.ProducerServiceStub(channels.channel_to(cluster.address))
    await producing.Publish(producer_pb2.PublishRequest(topic="flood", messages=[record_pb2.Message(body=b"x")]))


async def test_a_name_servers_unread_watches_cost_bounded_memory(tmp_path: Path) -> None:
    """G17: watches beyond the memory limit are refused or ended, and the directory is served meanwhile."""
    environ = {"namesrv": {"LOG_LEVEL": "error", "MEMORY_BUDGET_BYTES": 4 << 20}}
    async with asyncio.timeout(280), process_cluster(tmp_path, environ=environ) as cluster, Channels() as channels:
        stub = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(cluster.namesrv.address))
        for number in range(TOPICS):
            await stub.CreateTopic(namesrv_pb2.CreateTopicRequest(name=f"{'t' * 100}{number}", read_queue_count=1))
        pid = cluster.namesrv.pid
        before_bytes = largest_bytes = memory_bytes(pid)

        async def begin(channel: grpc.aio.Channel) -> Any:
            return namesrv_pb2_grpc.NameServiceStub(channel).WatchRoutes(namesrv_pb2.WatchRoutesRequest())

        async with deaf_calls(cluster.namesrv.address, WATCHES, begin) as calls:
            while not any(["allowed bytes are used (memory_budget_bytes)" in await refusal_of(call) for call in calls]):
                await stub.GetTopic(namesrv_pb2.GetTopicRequest(name=f"{'t' * 100}0"))
                largest_bytes = max(largest_bytes, memory_bytes(pid))
        assert largest_bytes - before_bytes < SLACK_BYTES
        assert cluster.namesrv.alive

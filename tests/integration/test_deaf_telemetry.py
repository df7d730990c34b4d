"""A client of RocketMQ's protocol that writes much to its telemetry stream and reads nothing, on a real connection."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2.definition_pb2 import Resource
from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.common.process.background import Background
from ortoo.verification.servers.cluster import open_cluster

METADATA = (("x-mq-client-id", "deaf"), ("x-mq-language", "JAVA"))
TOPICS = 60
"""Number of topics in each settings message, so that few answers fill gRPC's window of a peer that does not read."""


def settings() -> TelemetryCommand:
    """Settings of a producer with long names, which the snode repeats in its answer."""
    topics = [Resource(name=f"{'t' * 100}{number}") for number in range(TOPICS)]
    return TelemetryCommand(
        settings=d.Settings(client_type=d.ClientType.PRODUCER, publishing=d.Publishing(topics=topics))
    )


@pytest.mark.parametrize("count", [2_000, 20_000])
async def test_its_stream_ends_and_nothing_else(tmp_path: Path, count: int) -> None:
    """The snode reads up to its limit and ends the connection, though the peer's writes wait forever."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("t", queues=1)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
        async with grpc.aio.insecure_channel(cluster.address, options=options) as channel:
            call: Any = MessagingServiceStub(channel).Telemetry(metadata=METADATA)

            async def say_all() -> None:
                with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    for _ in range(count):
                        await call.write(settings())

            # grpc.aio waits in `write` while the server does not read, and ends the call when the write is cancelled.
            # The write therefore runs in a task of its own.
            async with Background("client") as background:
                background.spawn("say", say_all())
                code = await call.code()
            # If a connection ends during a write or an answer, the client's own gRPC returns INTERNAL; a server's
            # INTERNAL would carry its Failure.
            ended = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
            is_clients_own = code is grpc.StatusCode.INTERNAL and not await call.trailing_metadata()
            assert ended or is_clients_own, (code, await call.details())
        async with mq.producer("t") as producer:
            await producer.send(Message(b"on"))
        assert set(cluster.running) == {"namesrv-0", "enode-0", "snode-0"}

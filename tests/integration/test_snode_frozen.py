"""Requests to a frozen enode are answered promptly."""

import asyncio
import contextlib
from pathlib import Path

import grpc
import pytest

from ortoo.client import connect
from ortoo.common.errors import Unavailable
from ortoo.common.grpc.channels import Channels
from ortoo.v1 import namesrv_pb2, producer_pb2, record_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.processes import process_cluster
from ortoo.verification.servers.valkey import valkey


async def refused(producer: ProducerServiceStub, request: producer_pb2.PublishRequest) -> None:
    """Publish, and expect a refusal."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await producer.Publish(request)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_identified_sends_to_a_frozen_enode_end_no_snode(tmp_path: Path) -> None:
    """On every snode a send with the application's own id gets Unavailable; all snodes stay alive and keep serving."""
    async with (
        asyncio.timeout(60),
        valkey(tmp_path / "valkey") as server,
        process_cluster(tmp_path, snodes=2, environ={"snode": {"REDIS_URL": server.url}}) as roles,
        Channels() as channels,
    ):
        admin = AdminServiceStub(channels.channel_to(roles.snode.address))
        await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", read_queue_count=1))
        producers = [ProducerServiceStub(channels.channel_to(snode.address)) for snode in roles.snodes]

        def identified(number: int) -> producer_pb2.PublishRequest:
            message = record_pb2.Message(body=b"x")
            message.properties["DEDUP_ID"] = f"order-{number}"
            return producer_pb2.PublishRequest(topic="t", messages=[message])

        async def stored(producer: ProducerServiceStub, number: int) -> producer_pb2.PublishResponse:
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    return await producer.Publish(identified(number))

        for number, producer in enumerate(producers):
            await stored(producer, number)
        roles.enode.freeze()
        try:
            await asyncio.gather(
                *(
                    refused(producer, identified(10 * number + 10 + n))
                    for number, producer in enumerate(producers)
                    for n in range(3)
                ),
                sent_once_in_vain(roles.snodes[0].address),
            )
        finally:
            roles.enode.thaw()
        assert all(snode.alive for snode in roles.snodes)
        for number, producer in enumerate(producers):
            again = await stored(producer, number)
            assert again.receipts[0].duplicate
        assert [snode.starts for snode in roles.snodes] == [1, 1]


async def sent_once_in_vain(address: str) -> None:
    """The client's `send_once`, without success."""
    async with connect(address) as mq, mq.producer("t") as producer:
        with pytest.raises(Unavailable):
            await producer.send_once(b"x", "order-client")

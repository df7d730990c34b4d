"""Signatures that cover the method and the request."""

import asyncio
from pathlib import Path

import grpc
import pytest

from ortoo.client import ConsumerSettings
from ortoo.common.errors import Forbidden
from ortoo.common.grpc.channels import Headers, with_headers
from ortoo.common.grpc.signature import signing
from ortoo.v1 import admin_pb2, namesrv_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from tests.integration.guarded_cluster import SECRET, as_user, guarded, signed


async def test_a_captured_signature_of_our_client_is_good_for_that_request_alone(tmp_path: Path) -> None:
    """An eavesdropper cannot turn a signed ListTopics into a DeleteTopic, nor one request into another."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        channel, captured = cluster.channels.channel_to(cluster.address), list[Headers]()
        sign = signing("ann", SECRET, cluster.clock)

        def listening(path: str, request: bytes | None) -> Headers:
            captured.append(sign(path, request))
            return captured[-1]

        overheard, plain = AdminServiceStub(with_headers(channel, listening)), AdminServiceStub(channel)
        describe = admin_pb2.DescribeTopicRequest(name="t")
        assert (await overheard.DescribeTopic(describe)).topic.name == "t"
        [headers] = captured
        assert (await plain.DescribeTopic(describe, metadata=headers)).topic.name == "t"
        for call in (
            plain.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="t"), metadata=headers),
            plain.DescribeTopic(admin_pb2.DescribeTopicRequest(name="u"), metadata=headers),
            plain.Tail(admin_pb2.TailRequest(topic="t"), metadata=headers).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_signatures_over_the_time_alone_can_be_refused(tmp_path: Path) -> None:
    """For clusters without clients of RocketMQ; our own client still works, with single calls and streams."""
    async with guarded(tmp_path, signed_requests_required=True) as cluster, asyncio.timeout(60):
        with pytest.raises(grpc.aio.AioRpcError, match="signed_requests_required") as refused:
            stub = AdminServiceStub(cluster.channels.channel_to(cluster.address))
            await stub.ListTopics(namesrv_pb2.ListTopicsRequest(), metadata=signed(cluster, "ann"))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        async with as_user(cluster, "shop") as client, client.producer("t") as producer:
            await producer.send(b"x")
            async with client.consumer("g", ["t"], ConsumerSettings(from_beginning=True)) as consumer:
                assert (await anext(aiter(consumer))).body == b"x"
        async with as_user(cluster, "ann") as ann:
            assert (await ann.admin.describe_cluster()).inner_ports_open
        async with as_user(cluster, "ann", "another secret") as liar:
            with pytest.raises(Forbidden):
                await liar.admin.list_topics()

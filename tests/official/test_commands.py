"""Commands of operators to the official clients."""

import asyncio
from pathlib import Path

import grpc
import pytest

from ortoo.common.process.clock import SystemClock
from ortoo.v1 import client_pb2, consumer_pb2, failure_pb2, session_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.verification.servers.cluster import open_cluster
from tests.official.client import official


async def test_the_nodejs_client_answers_commands(tmp_path: Path) -> None:
    """It is listed, returns its stacks, refuses to verify messages, and works after a reconnect."""
    async with open_cluster(tmp_path) as cluster, official("node", cluster.address) as client:
        await cluster.create_topic("t")
        await client("producer", name="p", topics=["t"])
        await client("push", name="c", group="g", subscriptions={"t": {"expression": "*"}})
        sent = await client("send", name="p", topic="t", body=b"first")
        await client.messages("c", 1)
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            admin = AdminServiceStub(channel)
            consumer = await listed(admin, "g")

            async def call(command: session_pb2.Command) -> session_pb2.CommandResult:
                request = client_pb2.CallClientRequest(client_id=consumer.client_id, command=command)
                return (await admin.CallClient(request)).result

            assert (await call(session_pb2.Command(print_stack=session_pb2.PrintStack()))).stack
            wish = session_pb2.ConsumeMessage(
                group="g", queue=topic_pb2.Queue(topic="t"), message_id=sent["message_id"]
            )
            verified = await call(session_pb2.Command(consume_message=wish))
            assert verified.failure.kind == failure_pb2.FAILURE_KIND_UNSUPPORTED
            assert not (await call(session_pb2.Command(reconnect=session_pb2.Reconnect()))).HasField("failure")
        await client("send", name="p", topic="t", body=b"second")
        assert [one["body"] for one in await client.messages("c", 2)] == [b"first", b"second"]


async def test_the_python_client_is_listed_and_its_silence_is_told(tmp_path: Path) -> None:
    """It ignores commands; the operator gets that error in time."""
    async with open_cluster(tmp_path) as cluster, official("python", cluster.address) as client:
        await cluster.create_topic("t")
        await client("simple", name="c", group="g", subscriptions={"t": {"expression": "*"}})
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            admin = AdminServiceStub(channel)
            consumer = await listed(admin, "g")
            command = session_pb2.Command(print_stack=session_pb2.PrintStack(), timeout_ms=500)
            with pytest.raises(grpc.aio.AioRpcError) as silent:
                await admin.CallClient(client_pb2.CallClientRequest(client_id=consumer.client_id, command=command))
            assert silent.value.code() == grpc.StatusCode.UNAVAILABLE


async def listed(admin: AdminServiceStub, group: str) -> consumer_pb2.GroupMember:
    """The one consumer of a group, once the server knows it: the client reports its start earlier than that."""
    async with asyncio.timeout(60):
        while True:
            try:
                [consumer] = (await admin.ListConsumers(client_pb2.ListConsumersRequest(group=group))).consumers
                return consumer
            except grpc.aio.AioRpcError as unknown:
                if unknown.code() != grpc.StatusCode.NOT_FOUND:
                    raise
                await SystemClock().sleep(0.05)

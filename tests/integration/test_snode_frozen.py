"""Requests to an enode that is stopped in its tracks are answered promptly."""

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import connect
from ortoo.common.errors import Unavailable
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.testing.servers.processes import process_cluster
from ortoo.testing.servers.valkey import valkey
from ortoo.v1 import failure_pb2, namesrv_pb2, producer_pb2, pull_pb2, record_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from tests.integration.snode_calls import batch_request, queue


async def test_frozen_enode_gives_a_prompt_error_and_works_again_when_thawed(tmp_path: Path) -> None:
    """With the enode frozen a producer hears Unavailable within its limit, not silence (E-241)."""
    async with process_cluster(tmp_path) as roles, Channels() as channels, asyncio.timeout(60):
        channel = channels.to(roles.snode.address)
        producer, admin = ProducerServiceStub(channel), AdminServiceStub(channel)
        await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", read_queue_count=1))
        request = producer_pb2.PublishRequest(topic="t", messages=[record_pb2.Message(body=b"x")])
        await producer.Publish(request)
        enode = (await producer.QueryRoute(producer_pb2.QueryRouteRequest(topic="t"))).writable_queues[0].enode
        roles.enode.freeze()
        try:
            assert await elapsed_s(refused(producer, request)) < 4.5
            assert await elapsed_s(unanswered(producer, enode)) < 4.5
        finally:
            roles.enode.thaw()
        stored = False
        while not stored:
            with contextlib.suppress(grpc.aio.AioRpcError):
                stored = bool(await producer.Publish(request))


async def elapsed_s(work: Coroutine[Any, Any, None]) -> float:
    """How long something takes."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    await work
    return clock.monotonic_s() - began_s


async def refused(producer: ProducerServiceStub, request: producer_pb2.PublishRequest) -> None:
    """Publish in vain."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await producer.Publish(request)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def unanswered(producer: ProducerServiceStub, enode: str) -> None:
    """Produce in vain."""
    batches = [batch_request(n, queue("t", enode=enode), [b"x"]) for n in range(5)]
    async for answer in producer.Produce(iter(batches)):
        assert answer.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE


async def test_frozen_enode_lets_no_consumer_wait_in_silence(tmp_path: Path) -> None:
    """Pulls, locks, commits and questions about offsets are answered within the limit as well (E-241)."""
    async with process_cluster(tmp_path) as roles, Channels() as channels, asyncio.timeout(60):
        channel = channels.to(roles.snode.address)
        consumer = ConsumerServiceStub(channel)
        await AdminServiceStub(channel).CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", read_queue_count=1))
        place = queue("t")
        offset = pull_pb2.ConsumerOffset(queue=place, offset=0)
        commit = pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[offset])
        await consumer.CommitOffsets(commit)

        async def pull() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await consumer.Pull(pull_pb2.PullRequest(group="g", queue=place))
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

        async def lock() -> None:
            request = pull_pb2.LockQueuesRequest(group="g", client_id="a", queues=[place])
            [refused] = (await consumer.LockQueues(request)).refused
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE

        async def store() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await consumer.CommitOffsets(commit)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

        async def ask() -> None:
            request = pull_pb2.QueryConsumerOffsetsRequest(group="g", queues=[place])
            [refused] = (await consumer.QueryOffsets(request)).refused
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE

        roles.enode.freeze()
        try:
            took_s = await asyncio.gather(*map(elapsed_s, (pull(), lock(), store(), ask())))
            assert max(took_s) < 4.5
        finally:
            roles.enode.thaw()


async def test_identified_sends_to_a_frozen_enode_end_no_snode(tmp_path: Path) -> None:
    """B-002: at every snode a send with an id of the application's is told Unavailable; all snodes live, and go on."""
    async with (
        asyncio.timeout(60),
        valkey(tmp_path / "valkey") as server,
        process_cluster(tmp_path, snodes=2, environ={"snode": {"REDIS_URL": server.url}}) as roles,
        Channels() as channels,
    ):
        admin = AdminServiceStub(channels.to(roles.snode.address))
        await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", read_queue_count=1))
        producers = [ProducerServiceStub(channels.to(snode.address)) for snode in roles.snodes]

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
    """The client's `send_once`."""
    async with connect(address) as mq, mq.producer("t") as producer:
        with pytest.raises(Unavailable):
            await producer.send_once(b"x", "order-client")

"""The lag of a group over time: retries are included, permissions are checked, and the command shows it."""

import asyncio
from pathlib import Path

import grpc
import pytest

from ortoo.client import ConsumerSettings, LagHistory, Message, NotFound, connect
from ortoo.v1 import lag_pb2, pull_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.guarded_cluster import guarded, signed


async def test_the_lag_is_recorded_with_retries(tmp_path: Path) -> None:
    """Three messages wait in two topics and a failed one in retries: the next sample has all four."""
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address) as mq, asyncio.timeout(120):
        await cluster.create_topic("orders", queues=1, enodes=("enode-0",))
        await cluster.create_topic("other", queues=1, enodes=("enode-1",))
        await mq.admin.groups.update("g", retry="list:1h")
        async with mq.consumer("g", ["orders", "other"], ConsumerSettings(from_beginning=True)) as consumer:
            for topic in ("orders", "other"):
                async with mq.producer(topic) as producer:
                    await producer.send(Message(b"first"))
            messages = aiter(consumer)
            for _ in range(2):
                (await anext(messages)).ack()
        place = topic_pb2.Queue(topic="orders", enode="enode-0", queue_id=0)
        stub = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        await stub.NackMessages(pull_pb2.NackMessagesRequest(group="g", queue=place, offsets=[0]))
        for topic, count in (("orders", 1), ("other", 2)):
            async with mq.producer(topic) as producer:
                for _ in range(count):
                    await producer.send(Message(b"x"))

        async def recorded(topic: str, lag: int) -> LagHistory:
            while True:
                found = await mq.admin.groups.lag_history("g", topic)
                last = found.samples[-1] if found.samples else None
                if last and last.lag_messages == lag and not last.is_incomplete and not found.unreachable_enodes:
                    return found
                await cluster.clock.sleep(0.2)

        found = await recorded("", 4)
        assert found.interval_ms == 10_000
        assert all(one.at_ms % 10_000 == 0 for one in found.samples)
        assert not found.is_partial
        await recorded("orders", 2)
        await recorded("other", 3)
        later = await mq.admin.groups.lag_history("g", from_ms=found.samples[-1].at_ms)
        assert later.samples[0].at_ms == found.samples[-1].at_ms
        shown = await command.run(["ortoo", "lag", "g", "orders", "--history"], cluster.address)
        assert shown.exit_code == 0, shown.stderr
        assert shown.stdout.split()[:4] == ["TIME", "LAG", "UNTIL", "RETENTION"]
        assert shown.stdout.splitlines()[-1].split()[-1] in ("2", "s")
        with pytest.raises(NotFound, match="no group"):
            await mq.admin.groups.lag_history("misspelled")
        with pytest.raises(NotFound, match="missing"):
            await mq.admin.groups.lag_history("g", "missing")
        await cluster.close("enode-1")
        while (found := await mq.admin.groups.lag_history("g")).unreachable_enodes != ("enode-1",):
            await cluster.clock.sleep(0.2)
        assert found.samples[-1].lag_messages == 2


async def test_the_history_needs_the_permissions_of_the_lag(tmp_path: Path) -> None:
    """A user sees groups and topics of its rules. Without a topic, the sum leaves out topics that it may not see."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        admin = AdminServiceStub(cluster.channels.channel_to(cluster.address))
        for group, topic, words in (("closed", "", "group 'closed'"), ("g", "u", "topic 'u'")):
            with pytest.raises(grpc.aio.AioRpcError, match=words):
                request = lag_pb2.ListLagHistoryRequest(group=group, topic=topic)
                await admin.ListLagHistory(request, metadata=signed(cluster, "shop"))
        await admin.ListLagHistory(
            lag_pb2.ListLagHistoryRequest(group="g", topic="t"), metadata=signed(cluster, "shop")
        )

"""The snode when an enode, a client, the name server or the snode itself stops."""

import asyncio
import contextlib
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.process.background import Background
from ortoo.common.records.batch import open_batch
from ortoo.snode import log_events
from ortoo.v1 import admin_pb2, consumer_pb2, failure_pb2, namesrv_pb2, producer_pb2, topic_pb2
from ortoo.verification.servers.cluster import STOP_GRACE_S
from tests.integration.push_client import PushClient
from tests.integration.snode_calls import batch_request, open_snode_cluster, queue


async def test_push_goes_on_after_the_enode_restarts(tmp_path: Path) -> None:
    """A session survives an enode's restart and continues at the next offset; acknowledgements arrive."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        await snode.publish("t", b"one")
        async with PushClient(snode, "g", "t", from_beginning=True) as member:
            first = await member.delivery()
            await snode.cluster.close("enode-0")
            await member.acknowledge(first)
            await snode.cluster.open_enode("enode-0")
            assert (await member.event("committed")).offsets[0].offset == 1
            receipts = await snode.publish("t", b"two")
            assert receipts[0].offset == 1
            second = await member.delivery()
            assert (second.first_offset, second.next_offset) == (1, 2)


async def test_enode_that_is_away_is_named_at_once(tmp_path: Path) -> None:
    """With its enode down a publish, a batch of a stream and a read fail promptly as Unavailable and name the enode."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        await snode.publish("t", b"one")
        await snode.cluster.close("enode-0")
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await snode.publish("t", b"two")
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "enode-0" in (refused.value.details() or "")
        answers = await snode.produce(batch_request(1, queue("t"), [b"x"]))
        assert answers[1].failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE
        assert "enode-0" in answers[1].failure.message
        reading = snode.consumer.Fetch(consumer_pb2.FetchRequest(queue=queue("t")))
        with pytest.raises(grpc.aio.AioRpcError) as unread:
            await reading.read()
        assert unread.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_one_dead_enode_does_not_stop_the_other(tmp_path: Path) -> None:
    """Messages without a group avoid an enode that is down, and a group's offsets on the other one move on (E-110)."""
    async with open_snode_cluster(tmp_path, enodes=2) as snode, asyncio.timeout(60):
        await snode.topic("t", queues=2)
        async with PushClient(snode, "g", "t", from_beginning=True) as member:
            await snode.cluster.close("enode-1")
            receipts = [(await snode.publish("t", b"%d" % n))[0] for n in range(6)]
            assert {receipt.queue.enode for receipt in receipts} == {"enode-0"}
            delivery = await member.delivery()
            got = open_batch(batch_of(delivery.batch)).bodies()
            while len(got) < 6:
                delivery = await member.delivery()
                got += open_batch(batch_of(delivery.batch)).bodies()
            await member.acknowledge(delivery)
            assert (await member.event("committed")).offsets[0].offset == delivery.next_offset
            assert sorted(got) == [b"%d" % n for n in range(6)]


async def test_name_server_may_be_away(tmp_path: Path) -> None:
    """Without a name server known topics are served; when it is back new topics are too."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        await snode.cluster.close("namesrv-0")
        assert (await snode.publish("t", b"one"))[0].offset == 0
        async with PushClient(snode, "g", "t", from_beginning=True) as member:
            assert (await member.delivery()).next_offset == 1
        await snode.cluster.open_namesrv()
        assert (await snode.publish("t", b"two"))[0].offset == 1
        created = False
        while not created:
            with contextlib.suppress(grpc.aio.AioRpcError):
                created = bool(await snode.topic("u"))
        assert (await snode.publish("u", b"one"))[0].offset == 0


async def test_silent_session_expires_and_its_queues_move(tmp_path: Path) -> None:
    """A session that is silent for the expiry time is closed with the reason; its peer gets its queues (E-045)."""
    async with (
        open_snode_cluster(tmp_path, session_expiry_s=0.5, sweep_interval_s=0.05) as snode,
        Background("test") as background,
        asyncio.timeout(60),
    ):
        await snode.topic("t", queues=2)
        async with PushClient(snode, "g", "t") as silent, PushClient(snode, "g", "t") as lively:
            assert len((await lively.event("assignment")).queues) == 1
            closing = background.spawn("closing", silent.event("closed"))
            while not closing.done():
                await lively.call.write(consumer_pb2.PushRequest(heartbeat=consumer_pb2.Heartbeat()))
                await asyncio.wait([closing], timeout=0.05)
            assert (await closing).reason == consumer_pb2.CLOSE_REASON_EXPIRED
            assert len((await lively.event("assignment")).queues) == 2


async def test_slow_consumer_is_evicted_with_the_reason(tmp_path: Path) -> None:
    """A consumer that acknowledges nothing while messages pile up is evicted; its next session starts there (E-083)."""
    async with open_snode_cluster(tmp_path, sweep_interval_s=0.05) as snode, asyncio.timeout(60):
        await snode.topic("t")
        group = topic_pb2.Group(
            name="g", consume_enabled=True, slow_consumer_threshold_messages=10, slow_consumer_grace_ms=200
        )
        await snode.admin.PutGroup(namesrv_pb2.PutGroupRequest(group=group))
        async with PushClient(snode, "g", "t", from_beginning=True, client_id="slow") as slow:
            await snode.publish("t", b"first")
            await slow.acknowledge(await slow.delivery())
            await slow.event("committed")
            with capture_logs() as lines:
                await snode.publish("t", *[b"x"] * 12)
                closed = await slow.event("closed")
            assert closed.reason == consumer_pb2.CLOSE_REASON_SLOW_CONSUMER
            assert "threshold 10" in closed.message
            [told] = [one for one in lines if one["event"] == log_events.SLOW_CONSUMER_EVICTED.name]
            assert (told["group"], told["client"], told["reason"]) == ("g", "slow", closed.message)
            assert told["reason"].startswith("queue t/enode-0/0 ")
        async with PushClient(snode, "g", "t", from_beginning=True) as again:
            assert (await again.delivery()).first_offset == 1


async def test_client_that_breaks_off_leaves_its_group(tmp_path: Path) -> None:
    """A cancelled call leaves the group: the other consumer gets all queues at once (E-044)."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t", queues=4)
        async with PushClient(snode, "g", "t") as stays:
            await stays.event("assignment")
            leaves = PushClient(snode, "g", "t")
            await leaves.__aenter__()
            assert len((await stays.event("assignment")).queues) == 2
            leaves.call.cancel()
            assert len((await stays.event("assignment")).queues) == 4


async def test_stopping_snode_says_goodbye(tmp_path: Path) -> None:
    """At a stop sessions are closed with SHUTDOWN after their acknowledgements are stored, and streams are answered."""
    async with open_snode_cluster(tmp_path) as snode, Background("test") as background, asyncio.timeout(60):
        await snode.topic("t")
        member = PushClient(snode, "g", "t", from_beginning=True)
        await member.__aenter__()
        await snode.publish("t", b"one")
        producing = snode.producer.Produce()
        await producing.write(batch_request(1, queue("t"), [b"two"]))
        answer = await producing.read()
        assert isinstance(answer, producer_pb2.ProduceResponse)
        await member.acknowledge(await member.delivery())
        stopping = background.spawn("stop", snode.cluster.close("snode-0"))
        closed = await member.event("closed")
        assert closed.reason == consumer_pb2.CLOSE_REASON_SHUTDOWN
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await producing.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        await stopping


async def test_stop_does_not_wait_for_those_who_follow(tmp_path: Path) -> None:
    """A tail and a read that follow a queue forever end when the snode stops."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        await snode.publish("t", b"one")
        reading = snode.consumer.Fetch(consumer_pb2.FetchRequest(queue=queue("t"), follow=True))
        tailing = snode.admin.Tail(admin_pb2.TailRequest(topic="t", from_beginning=True, follow=True))
        assert isinstance(await reading.read(), consumer_pb2.FetchResponse)
        assert isinstance(await tailing.read(), admin_pb2.TailResponse)
        async with asyncio.timeout(STOP_GRACE_S):
            await snode.cluster.close("snode-0")
        last = await reading.read()
        assert isinstance(last, consumer_pb2.FetchResponse)
        assert last.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await tailing.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_restarted_snode_goes_on_from_what_was_acknowledged(tmp_path: Path) -> None:
    """A snode stores nothing: after its restart a new session starts at the committed offset (E-106, E-240)."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        await snode.publish("t", b"one", b"two")
        async with PushClient(snode, "g", "t", from_beginning=True) as member:
            await member.acknowledge(await member.delivery())
            await member.event("committed")
        await snode.cluster.close("snode-0")
        await snode.cluster.open_snode("snode-0")
        await snode.publish("t", b"three")
        async with PushClient(snode, "g", "t", from_beginning=True) as member:
            delivery = await member.delivery()
            assert delivery.first_offset == 2
            await member.acknowledge(delivery)
            assert (await member.event("committed")).offsets[0].offset == 3


async def test_deleted_and_recreated_topic_starts_empty_for_its_group(tmp_path: Path) -> None:
    """A session survives the recreation of its topic and gets the new topic's first message."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        await snode.publish("t", b"old", b"old")
        async with PushClient(snode, "g", "t", from_beginning=True) as member:
            await member.acknowledge(await member.delivery())
            await member.event("committed")
            await snode.admin.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="t"))
            await snode.topic("t")
            assert (await snode.publish("t", b"new"))[0].offset == 0
            delivery = await member.delivery()
            assert (delivery.first_offset, delivery.next_offset) == (0, 1)

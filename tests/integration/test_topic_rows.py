"""Topics for producers: in an operator's order, and created by their first message where that is allowed."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.v1 import namesrv_pb2, producer_pb2, record_pb2, topic_pb2
from tests.integration.snode_calls import Snode, batch_request, open_snode_cluster, queue

METADATA = (("x-mq-client-id", "tester"), ("x-mq-language", "PYTHON"))


async def order(running: Snode, *places: tuple[str, int], **change: Any) -> topic_pb2.Topic:
    """Set the publish order of `t` to these queues."""
    wanted = topic_pb2.PublishOrder(places=[topic_pb2.PublishPlace(enode=e, queue_count=n) for e, n in places])
    request = namesrv_pb2.UpdateTopicRequest(name="t", publish_order=wanted, **change)
    return (await running.admin.UpdateTopic(request)).topic


async def rocketmq_route(running: Snode, topic: str) -> s.QueryRouteResponse:
    """The route that RocketMQ's clients get."""
    async with grpc.aio.insecure_channel(running.cluster.address) as channel:
        request = s.QueryRouteRequest(topic=d.Resource(name=topic))
        answer: s.QueryRouteResponse = await MessagingServiceStub(channel).QueryRoute(request, metadata=METADATA)
        return answer


async def test_producers_get_the_queues_in_the_operators_order(tmp_path: Path) -> None:
    """E-027: exactly those, in that order, for every protocol and over a restart of the name server."""
    async with open_snode_cluster(tmp_path, enodes=2) as running, asyncio.timeout(60):
        await running.topic("t", 4)
        wanted = [("enode-1", 0), ("enode-1", 1), ("enode-1", 2), ("enode-0", 0)]
        assert [(q.enode, q.queue_id) for q in (await running.route("t")).writable_queues] != wanted
        await order(running, ("enode-1", 3), ("enode-0", 1))

        async def publish_list() -> list[tuple[str, int]]:
            return [(q.enode, q.queue_id) for q in (await running.route("t")).writable_queues]

        assert await publish_list() == wanted
        assert len((await running.route("t")).readable_queues) == 8
        route = (await rocketmq_route(running, "t")).message_queues
        to_send = [(q.broker.name, q.id) for q in route if q.permission in (d.WRITE, d.READ_WRITE)]
        assert (to_send, len(route)) == (wanted, 8)
        # No message goes elsewhere, not even one with a message group; and each group stays in its queue.
        receipts = [
            receipt
            for number in range(24)
            for receipt in await running.publish("t", b"x", message_group=f"key-{number % 12}" if number % 2 else "")
        ]
        used = {(r.queue.enode, r.queue.queue_id) for r in receipts}
        assert used <= set(wanted)
        assert len({r.queue.enode for r in receipts}) == 2
        async with connect(running.cluster.address) as mq, mq.producer("t") as producer:
            for number in range(1, 12, 2):
                sent = await producer.send(Message(b"x", message_group=f"key-{number}"))
                assert (sent.queue.enode, sent.queue.queue_id) in used, "client and snode choose by the same list"
                assert sent.queue.queue_id == receipts[number].queue.queue_id
        await running.cluster.close("namesrv-0")
        await running.cluster.open_namesrv()
        stored = await running.cluster.name_service.GetTopic(namesrv_pb2.GetTopicRequest(name="t"))
        assert [(p.enode, p.queue_count) for p in stored.topic.publish_order.places] == [("enode-1", 3), ("enode-0", 1)]


async def test_an_order_that_cannot_be_is_refused_and_may_be_taken_back(tmp_path: Path) -> None:
    """E-027: too many queues, an enode without any and a repeated enode are named. An empty list removes the order."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        for places, word in (
            ((("enode-0", 3),), "1 to 2"),
            ((("enode-0", 0),), "1 to 2"),
            ((("enode-7", 1),), "no queues on"),
            ((("enode-0", 1), ("enode-0", 1)), "twice"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await order(running, *places)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "publish_order" in (refused.value.details() or "")
            assert word in (refused.value.details() or "")
        await order(running, ("enode-0", 2))
        with pytest.raises(grpc.aio.AioRpcError, match="change the order together"):
            await running.admin.UpdateTopic(namesrv_pb2.UpdateTopicRequest(name="t", write_queue_count=1))
        topic = await order(running, write_queue_count=1)
        assert not topic.HasField("publish_order")
        assert [q.queue_id for q in (await running.route("t")).writable_queues] == [0]


async def test_a_topic_is_made_by_its_first_message_where_that_is_allowed(tmp_path: Path) -> None:
    """E-028: each way of sending creates one with 4 queues. Looking up a topic, or naming a group's, creates none."""
    async with open_snode_cluster(tmp_path, auto_create_topics=True) as running, asyncio.timeout(60):
        await asyncio.gather(*(running.publish("single", b"x") for _ in range(8)))
        begin = producer_pb2.BeginTransactionRequest(
            topic="transacted", messages=[record_pb2.Message(body=b"x")], producer_group="p"
        )
        await running.producer.BeginTransaction(begin)
        answers = await running.produce(batch_request(1, queue("streamed"), [b"x"]))
        assert not answers[1].HasField("failure")
        assert (await rocketmq_route(running, "official")).status.code == d.OK
        async with connect(running.cluster.address) as mq, mq.producer("native") as producer:
            await producer.send(b"x")
        for name in ("single", "transacted", "streamed", "official", "native"):
            route = await running.route(name)
            assert [q.queue_id for q in route.writable_queues] == [0, 1, 2, 3], name
        for name in ("unknown", "%RETRY%g"):
            with pytest.raises(grpc.aio.AioRpcError, match="there is no topic"):
                await running.route(name)
        with pytest.raises(grpc.aio.AioRpcError, match="only the servers write to %RETRY%g"):
            await running.publish("%RETRY%g", b"x")


async def test_a_topic_is_not_made_by_a_message_unless_that_is_said(tmp_path: Path) -> None:
    """E-028: by default every way of sending gets the error that there is no such topic, and nothing is created."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.publish("t", b"x")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        answers = await running.produce(batch_request(1, queue("t"), [b"x"]))
        assert "there is no topic" in answers[1].failure.message
        assert (await rocketmq_route(running, "t")).status.code == d.TOPIC_NOT_FOUND
        assert not (await running.admin.ListTopics(namesrv_pb2.ListTopicsRequest())).topics

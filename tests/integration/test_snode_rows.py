"""Features of a snode seen from outside: metrics, bounds, limits, and reactions to changes of the cluster."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import HandlerOptions, ReceivedMessage, connect
from ortoo.v1 import (
    admin_pb2,
    client_pb2,
    consumer_pb2,
    enode_pb2,
    enode_pb2_grpc,
    flow_control_pb2,
    namesrv_pb2,
    session_pb2,
    topic_pb2,
)
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import Series, scraped
from tests.integration.pull_group import PROMPT, beside, send, until
from tests.integration.push_client import PushClient
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, open_snode_cluster, queue
from tests.own_time import own_time


@contextlib.asynccontextmanager
async def counted(folder: Path, **settings: Any) -> AsyncIterator[tuple[Snode, str]]:
    """A cluster with the topic t of one queue, and the metrics address of its snode."""
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with open_snode_cluster(folder, metrics_address=address, **settings) as running:
        await running.topic("t")
        yield running, address


def of_group(series: Series, group: str) -> float:
    """The value of one group's series; 0 if there is none."""
    return sum(value for labels, value in series.items() if ("consumer_group", group) in labels)


async def refused(call: Any) -> bool:
    """Whether a limit refuses a call."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return True
    return False


async def test_a_push_is_counted_and_what_ended_is_not(tmp_path: Path) -> None:
    """E-070, E-074, E-048: one message counts as one push and no pull.

    No session stays in the gauge; renamed ones count.
    """
    async with counted(tmp_path) as (running, address), asyncio.timeout(40):
        async with PushClient(running, "g", "t") as client:
            await running.until_subscribed("g", "t", 1)
            before = await scraped(address)
            await running.publish("t", b"x")
            await client.delivery()
            after = await scraped(address)
            assert (
                of_group(after["ortoo_deliveries_total"], "g") - of_group(before.get("ortoo_deliveries_total", {}), "g")
                == 1
            )
            assert of_group(after["rocketmq_consumer_connections"], "g") == 1
            asked = {dict(labels)["request_code"] for labels in after["rocketmq_rpc_latency_count"]}
            assert not [method for method in asked if method.endswith(("/Pull", "/Fetch", "/Pop"))]
        assert of_group((await scraped(address)).get("rocketmq_consumer_connections", {}), "g") == 0
        async with SessionClient(running, "a") as session:
            await session.consume("g", "t")
            await session.say(hello=session_pb2.Hello(client_id="b"))
            await session.members("g", "b")
            assert (await scraped(address))["ortoo_client_ids_changed_total"][()] == 1


async def test_slow_begins_one_message_above_the_threshold(tmp_path: Path) -> None:
    """E-082, E-085, E-083: a new group at the end of a long queue is not slow, nor is one exactly at the threshold."""
    async with counted(tmp_path, sweep_interval_s=0.02) as (running, address), asyncio.timeout(40):
        group = topic_pb2.Group(
            name="g", consume_enabled=True, slow_consumer_threshold_messages=10, slow_consumer_grace_ms=50
        )
        await running.admin.PutGroup(namesrv_pb2.PutGroupRequest(group=group))
        await running.publish("t", *[b"x"] * 500)

        async def evicted() -> float:
            await running.cluster.clock.sleep(0.4)  # many sweeps, and the grace many times
            return (await scraped(address))["ortoo_slow_consumers_evicted_total"][()]

        async with PushClient(running, "g", "t") as client:
            await running.until_subscribed("g", "t", 1)
            assert await evicted() == 0
            await running.publish("t", b"acknowledged")
            await client.acknowledge(await client.delivery())
            await client.event("committed")
            await running.publish("t", *[b"x"] * 11)  # the newest is 10 ahead of the acknowledged offset
            assert await evicted() == 0
            await running.publish("t", b"x")
            assert (await client.event("closed")).reason == consumer_pb2.CLOSE_REASON_SLOW_CONSUMER
            assert await evicted() == 1


async def test_who_takes_nothing_holds_nobody_up(tmp_path: Path) -> None:
    """E-088, E-190: without credit nothing is sent and nothing is lost.

    An unread session delays no events of others.
    """
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with (
            PushClient(running, "idle", "t", messages=0, from_beginning=True) as idle,
            PushClient(running, "busy", "t", from_beginning=True) as busy,
        ):
            await idle.queues(1)
            for _ in range(20):
                await running.publish("t", *[b"x" * 1000] * 20)
            while (await busy.delivery()).next_offset < 400:
                pass
            assert not [one for one in idle.others if one.WhichOneof("event") == "delivery"]
            await idle.grant(10_000, 64 << 20)
            while (await idle.delivery()).next_offset < 400:
                pass
        async with SessionClient(running, "deaf") as deaf, SessionClient(running, "heard") as heard:
            await deaf.consume("g", "t")
            await heard.consume("g", "t")
            async with SessionClient(running, "z") as coming:
                for _ in range(200):
                    await coming.consume("g", "t")
                    gone = session_pb2.UnregisterConsumer(group="g")
                    await coming.answer(await coming.say(unregister_consumer=gone))
                await coming.consume("g", "t")
                async with own_time() as taken:
                    await heard.members("g", "deaf", "heard", "z")
                assert taken.seconds < 5


async def test_bytes_topics_and_everything_together_are_limited(tmp_path: Path) -> None:
    """E-244, E-245, E-243: a second send beyond a limit is refused. Heartbeats are never counted.

    The limits are so low that the second send is beyond them also after a stall of the machine.
    """
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.topic("u")
        publish = "ProducerService/Publish"

        async def limit(*rules: flow_control_pb2.FlowRule) -> None:
            await running.admin.UpdateFlowControl(flow_control_pb2.UpdateFlowControlRequest(rules=rules))

        await limit(flow_control_pb2.FlowRule(unit="FLOW_UNIT_BYTES", method=publish, per_second=50))  # type: ignore[arg-type]
        assert [await refused(running.publish("t", b"x" * 4_000)) for _ in range(2)] == [False, True]
        await limit(flow_control_pb2.FlowRule(topic="t", per_second=0.01))
        assert [await refused(running.publish("t", b"x")) for _ in range(2)] == [False, True]
        assert [await refused(running.publish("u", b"x")) for _ in range(5)] == [False] * 5
        async with SessionClient(running, "a") as client:
            await client.consume("g", "t")
            await limit(flow_control_pb2.FlowRule(per_second=0.01))
            assert [await refused(running.publish(topic, b"x")) for topic in ("t", "u")] == [False, True]
            for _ in range(50):
                await client.say(heartbeat=consumer_pb2.Heartbeat())
            await client.answer(await client.say(register_producer=session_pb2.RegisterProducer(group="p")))


async def test_an_enode_that_joins_gets_its_part_and_snodes_that_leave_are_forgotten(tmp_path: Path) -> None:
    """E-025, E-250: a consumer soon gets the queues of the new enode. Enodes list the live snodes."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        running = Snode(cluster)
        await running.topic("t", 2)
        async with PushClient(running, "g", "t") as client:
            await client.queues(2)
            await cluster.open_enode("enode-1")
            change = namesrv_pb2.UpdateTopicRequest(name="t", add_enodes=["enode-1"])
            await running.admin.UpdateTopic(change)
            assert {one.enode for one in (await client.queues(4)).queues} == {"enode-0", "enode-1"}
            await running.until_subscribed("g", "t", 4)
            await running.publish("t", b"x", queue=queue("t", 1, "enode-1"))
            assert (await client.delivery()).queue == queue("t", 1, "enode-1")

        async def snodes(enode: str) -> list[str]:
            stub = enode_pb2_grpc.EnodeServiceStub(cluster.channels.channel_to(cluster.address_of(enode)))
            return list((await stub.DescribeStore(enode_pb2.DescribeStoreRequest())).snodes)

        for enode in ("enode-0", "enode-1"):
            while await snodes(enode) != ["snode-0"]:
                await cluster.clock.sleep(0.02)
        await cluster.close("snode-0")
        for enode in ("enode-0", "enode-1"):
            while await snodes(enode):
                await cluster.clock.sleep(0.02)


async def test_a_wrong_place_stores_nothing_anywhere(tmp_path: Path) -> None:
    """E-029: a send to an unknown enode, or to one without queues of the topic, stores nothing anywhere."""
    async with open_snode_cluster(tmp_path, enodes=2) as running, asyncio.timeout(60):
        await running.create_topic("t", read_queue_count=1, enodes=["enode-0"])
        for enode in ("nobody", "enode-1"):
            with pytest.raises(grpc.aio.AioRpcError, match=enode):
                await running.publish("t", b"x", queue=queue("t", 0, enode))
        described = await running.admin.DescribeTopic(admin_pb2.DescribeTopicRequest(name="t"))
        assert [(one.enode, one.end_offset) for one in described.queues] == [("enode-0", 0)]


async def test_a_thousand_connections_that_say_nothing_are_harmless(tmp_path: Path) -> None:
    """E-046: opened and closed without a byte, or with bytes other than HTTP/2, they cause no error and no client."""
    async with counted(tmp_path) as (running, address), asyncio.timeout(60):
        host, _, port = running.cluster.address.rpartition(":")
        for number in range(1_000):
            with socket.create_connection((host, int(port)), timeout=10) as mute:
                if number % 2:
                    mute.sendall(b"GET / HTTP/1.1\r\n\r\n")
        async with SessionClient(running, "a") as client:
            await client.consume("g", "t")
            listed = (await running.admin.ListClients(client_pb2.ListClientsRequest())).clients
            assert [one.client_id for one in listed] == ["a"]
        calls = (await scraped(address))["rocketmq_rpc_latency_count"]
        assert {dict(labels)["response_code"] for labels in calls} <= {"OK", "CANCELLED"}


async def test_part_of_a_batch_is_done_and_the_rest_is_given_back(tmp_path: Path) -> None:
    """E-149: of four messages the first two are done. The others wait in the group's retry topic, each once."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("t", queue_count=1)
        await send(mq, range(4))
        seen: list[list[int]] = []

        async def handle(messages: Any) -> int:
            batch: list[ReceivedMessage] = list(messages)
            seen.append([message.offset for message in batch])
            return 2

        async with mq.pull_consumer("g", ["t"], PROMPT) as consumer:
            running = beside(consumer.run_batches(handle, HandlerOptions(batch_messages_max=4)))

            async def waiting() -> int:
                topics = {topic.name for topic in await mq.admin.list_topics()}
                return len(await mq.admin.list_delayed("%RETRY%g")) if "%RETRY%g" in topics else 0

            async def is_done() -> bool:
                lag = await mq.admin.describe_lag("g", "t")
                return await waiting() == lag.lag_messages == 2 and not any(one.lag_messages for one in lag.queues)

            await until(is_done, 30)
            running.cancel()
        assert seen == [[0, 1, 2, 3]]

"""Push sessions for a client: assignments, first offsets, and the cleanup when a session ends."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.records.batch import open_batch
from ortoo.v1 import (
    admin_pb2,
    client_pb2,
    consumer_pb2,
    enode_locks_pb2,
    enode_pb2,
    enode_pb2_grpc,
    pull_pb2,
    session_pb2,
)
from tests.integration.push_client import PushClient
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import batch_request, open_snode_cluster, queue
from tests.own_time import own_time


def offsets_of(delivery: Any) -> list[int]:
    """The offsets of the messages in a delivery."""
    rows = memoryview(delivery.rows).cast("i").tolist() or range(delivery.batch.count)
    return [delivery.first_offset + row for row in rows]


async def test_messages_are_pushed_without_asking_and_to_every_group(tmp_path: Path) -> None:
    """E-070, E-072, E-080: one message reaches both groups at once, with the queue in which it was stored."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t", 4)
        async with PushClient(running, "g", "t") as first, PushClient(running, "h", "t") as second:
            await first.queues(4)
            await second.queues(4)
            await running.until_subscribed("g", "t", 4)
            await running.until_subscribed("h", "t", 4)
            async with own_time() as taken:
                [receipt] = await running.publish("t", b"x")
                for client in (first, second):
                    delivery = await client.delivery()
                    assert (delivery.queue, offsets_of(delivery)) == (receipt.queue, [receipt.offset])
            assert taken.seconds < 5


async def test_what_came_while_nobody_listened_is_delivered_later(tmp_path: Path) -> None:
    """E-073: a group's messages wait for it. They come in order when a session opens."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        async with PushClient(running, "g", "t") as client:
            await client.queues(1)
            await running.until_subscribed("g", "t", 1)
        for number in range(5):
            await running.publish("t", b"%d" % number)
        async with PushClient(running, "g", "t") as client:
            found: list[int] = []
            while len(found) < 5:
                found += offsets_of(await client.delivery())
            assert found == [0, 1, 2, 3, 4]


async def test_queues_of_two_enodes_are_kept_apart(tmp_path: Path) -> None:
    """E-076, E-075: queue 0 of one enode and queue 0 of the other have their own owners, with their own messages."""
    async with open_snode_cluster(tmp_path, enodes=2) as running, asyncio.timeout(40):
        await running.topic("t", 1)
        async with (
            PushClient(running, "g", "t", client_id="a", from_beginning=True) as first,
            PushClient(running, "g", "t", client_id="b", from_beginning=True) as second,
        ):
            owned = {"a": (await first.queues(1)).queues[0], "b": (await second.queues(1)).queues[0]}
            assert {one.enode for one in owned.values()} == {"enode-0", "enode-1"}
            for client, place in ((first, owned["a"]), (second, owned["b"])):
                await running.publish("t", place.enode.encode(), queue=place)
                delivery = await client.delivery()
                body = open_batch(batch_of(delivery.batch)).message(0).body
                assert (delivery.queue, body) == (place, place.enode.encode())


async def test_nothing_is_left_of_a_session_that_ended(tmp_path: Path) -> None:
    """E-074: neither membership nor locks remain, so that the next consumer has the queues at once."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        topic = await running.topic("t", 2)
        async with PushClient(running, "g", "t", client_id="a") as client:
            await client.queues(2)
            await running.until_subscribed("g", "t", 2)
        answer = await running.consumer.QueryMembers(pull_pb2.QueryMembersRequest(group="g"))
        assert not answer.members
        enode = enode_pb2_grpc.EnodeServiceStub(
            running.cluster.channels.channel_to(running.cluster.address_of("enode-0"))
        )
        while (await enode.QueryLocks(enode_locks_pb2.QueryLocksRequest(group="g", topic_id=topic.topic_id))).locks:
            await running.cluster.clock.sleep(0.01)


async def test_broadcast_members_all_get_everything_from_where_they_say(tmp_path: Path) -> None:
    """E-112: each gets all queues, from its own offsets. Acknowledging commits nothing for the group."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.publish("t", b"a", b"b", b"c")
        broadcast = consumer_pb2.MESSAGE_MODEL_BROADCAST
        start = consumer_pb2.QueueStart(queue=queue("t"), offset=2)
        async with (
            PushClient(running, "g", "t", client_id="a", from_beginning=True, message_model=broadcast) as first,
            PushClient(running, "g", "t", client_id="b", message_model=broadcast, start_offsets=[start]) as second,
        ):
            whole, part = await first.delivery(), await second.delivery()
            assert (offsets_of(whole), offsets_of(part)) == ([0, 1, 2], [2])
            await first.acknowledge(whole)
            assert (await first.event("committed")).offsets[0].offset == 3
            stored = await running.consumer.QueryOffsets(pull_pb2.QueryConsumerOffsetsRequest(group="g", topic="t"))
            assert stored.offsets[0].offset == -1


async def test_a_new_group_starts_where_it_says(tmp_path: Path) -> None:
    """E-156: at the first message, at the end, or at a time. Committed offsets take precedence."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        times = []
        for number in range(3):
            answers = await running.produce(batch_request(number, queue("t"), [b"x"]))
            times.append(answers[number].stored_at_ms)
            await running.cluster.clock.sleep(0.002)
        by_time = {"start_from": consumer_pb2.START_FROM_TIME, "start_time_ms": times[1]}
        first = {"start_from": consumer_pb2.START_FROM_FIRST}
        rules: tuple[tuple[str, dict[str, Any], int], ...] = (
            ("first", first, 0),
            ("time", by_time, 1),
            ("last", {}, 3),
        )
        for group, how, first_offset in rules:
            async with PushClient(running, group, "t", **how) as client:
                await running.until_subscribed(group, "t", 1)
                if first_offset == 3:
                    await running.publish("t", b"y")
                delivery = await client.delivery()
                assert offsets_of(delivery)[0] == first_offset
                await client.acknowledge(delivery)
                await client.event("committed")
        async with PushClient(running, "last", "t", from_beginning=True) as client:
            await running.publish("t", b"z")
            assert offsets_of(await client.delivery())[0] == 4


async def test_subscriptions_change_while_the_session_runs(tmp_path: Path) -> None:
    """E-051, E-052, E-152: new tags and topics apply from then on. Tags are compared as text, not by their hash."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.topic("u")
        async with PushClient(running, "g", "t", tags="Aa") as client:
            await running.until_subscribed("g", "t", 1)
            await running.publish("t", b"0", tag="BB")
            await running.publish("t", b"1", tag="Aa")
            wanted = [await client.delivery()]
            while not wanted[-1].HasField("batch"):
                wanted.append(await client.delivery())
            assert offsets_of(wanted[-1]) == [1]
            news = [
                consumer_pb2.Subscription(topic="t", tag_expression="BB", version=5),
                consumer_pb2.Subscription(topic="u", version=5),
            ]
            await client.call.write(consumer_pb2.PushRequest(subscribe=consumer_pb2.Subscribe(subscriptions=news)))
            assert {one.topic for one in (await client.queues(2)).queues} == {"t", "u"}
            await running.publish("t", b"2", tag="BB")
            while not (delivery := await client.delivery()).HasField("batch"):
                pass
            assert offsets_of(delivery) == [2]


async def test_a_bad_filter_is_refused_at_the_start(tmp_path: Path) -> None:
    """E-153: an SQL condition delivers the matching messages. An invalid one refuses the session by its field."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.publish("t", b"low", properties={"a": "3"})
        await running.publish("t", b"high", properties={"a": "7"})
        wish = [consumer_pb2.Subscription(topic="t", sql_expression="a > 5")]
        call: Any = running.consumer.Push()
        opening = consumer_pb2.OpenSession(group="g", subscriptions=wish, start_from=consumer_pb2.START_FROM_FIRST)
        await call.write(consumer_pb2.PushRequest(open=opening))
        await call.write(consumer_pb2.PushRequest(credit=consumer_pb2.Credit(messages=10, bytes=1 << 20)))
        while (response := await call.read()).WhichOneof("event") != "delivery" or not response.delivery.HasField(
            "batch"
        ):
            pass
        assert offsets_of(response.delivery) == [1]
        call.cancel()
        wrong = consumer_pb2.OpenSession(
            group="g", subscriptions=[consumer_pb2.Subscription(topic="t", sql_expression="a >")]
        )
        call = running.consumer.Push()
        await call.write(consumer_pb2.PushRequest(open=wrong))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_push_session_belongs_to_its_clients_session(tmp_path: Path) -> None:
    """E-041, E-054, E-043: it needs the registration and ends with it. A late heartbeat restores nothing."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        async with SessionClient(running, "a") as client:
            early = PushClient(running, "g", "t", session_id=client.session_id)
            with pytest.raises(grpc.aio.AioRpcError, match="register_consumer"):
                await early.__aenter__()
            for group in ("g", "h"):
                await client.consume(group, "t", consume_type=session_pb2.CONSUME_TYPE_PUSH)
            async with (
                PushClient(running, "g", "t", session_id=client.session_id) as first,
                PushClient(running, "h", "t", session_id=client.session_id) as second,
            ):
                await first.queues(1)
                await second.queues(1)
                gone = session_pb2.UnregisterConsumer(group="g")
                await client.answer(await client.say(unregister_consumer=gone))
                assert (await first.event("closed")).reason == consumer_pb2.CLOSE_REASON_CLIENT_LEFT
                await client.say(heartbeat=consumer_pb2.Heartbeat())
                request = client_pb2.ListTopicGroupsRequest(topic="t")
                assert list((await running.admin.ListTopicGroups(request)).groups) == ["h"]
                await running.until_subscribed("h", "t", 1)
                await running.publish("t", b"x")
                assert (await second.delivery()).batch.count == 1


async def test_more_members_than_queues_leave_some_idle(tmp_path: Path) -> None:
    """E-121, E-071: of six consumers four have one queue each. Each message goes to the owner of its queue alone."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        topic = await running.topic("t", 4)
        clients = [PushClient(running, "g", "t", client_id=f"c{number}", from_beginning=True) for number in range(6)]
        for client in clients:
            await client.__aenter__()
        enode = enode_pb2_grpc.EnodeServiceStub(
            running.cluster.channels.channel_to(running.cluster.address_of("enode-0"))
        )
        request = enode_locks_pb2.QueryLocksRequest(group="g", topic_id=topic.topic_id)
        while [one.owner for one in (await enode.QueryLocks(request)).locks] != ["c0", "c1", "c2", "c3"]:
            await running.cluster.clock.sleep(0.02)
        for number, client in enumerate(clients[:4]):
            await running.publish("t", b"x", queue=queue("t", number))
            assert (await client.delivery()).queue == queue("t", number)
        for client in clients:
            client.call.cancel()


async def test_wrong_places_are_refused_at_once(tmp_path: Path) -> None:
    """E-029, E-021: an enode without queues of the topic, and an unknown topic, are named promptly."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with own_time() as taken:
            for call, code in (
                (running.publish("t", b"x", queue=queue("t", 0, "elsewhere")), grpc.StatusCode.INVALID_ARGUMENT),
                (running.publish("nowhere", b"x"), grpc.StatusCode.NOT_FOUND),
                (
                    running.admin.DescribeTopic(admin_pb2.DescribeTopicRequest(name="nowhere")),
                    grpc.StatusCode.NOT_FOUND,
                ),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is code
        assert taken.seconds < 3


async def test_routes_name_the_queues_for_writing_and_for_reading(tmp_path: Path) -> None:
    """E-020, E-022, E-025, E-250: the route has both enodes, producers use fewer queues, enodes know the snode."""
    async with open_snode_cluster(tmp_path, enodes=2) as running, asyncio.timeout(40):
        await running.create_topic("t", read_queue_count=4, write_queue_count=2)
        route = await running.route("t")
        assert [(one.enode, one.queue_id) for one in route.writable_queues] == [
            ("enode-0", 0),
            ("enode-0", 1),
            ("enode-1", 0),
            ("enode-1", 1),
        ]
        assert len(route.readable_queues) == 8
        async with PushClient(running, "g", "t") as client:
            assert len((await client.queues(8)).queues) == 8
        for name in ("enode-0", "enode-1"):
            stub = enode_pb2_grpc.EnodeServiceStub(
                running.cluster.channels.channel_to(running.cluster.address_of(name))
            )
            while list((await stub.DescribeStore(enode_pb2.DescribeStoreRequest())).snodes) != ["snode-0"]:
                await running.cluster.clock.sleep(0.02)

"""Members of one group whose filters differ, as in the deployment of a version with another filter."""

import asyncio
from pathlib import Path

from ortoo.client import Message, PopSettings, connect
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import open_batch
from ortoo.v1 import consumer_pb2
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.push_client import PushClient
from tests.integration.snode_calls import open_snode_cluster, queue

CLOCK = SystemClock()
COUNT = 40


async def test_each_popping_consumer_gets_the_messages_of_its_filter(tmp_path: Path) -> None:
    """None is lost, although each consumer also pops messages of the other one; no attempt counts for that."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as client, asyncio.timeout(60):
        await cluster.create_topic("t", queues=2)
        got: dict[str, list[str]] = {"a": [], "b": []}

        async def consume(tag: str) -> None:
            settings = PopSettings(messages_max=4, wait_ms=500)
            async with (
                connect(cluster.address, client_id=tag) as member,
                member.pop_consumer("g", "t", tag, settings) as consumer,
            ):
                while len(got[tag]) < COUNT:
                    for message in await consumer.pop():
                        assert (message.tag, message.attempt) == (tag, 1)
                        got[tag].append(message.body.decode())
                        await message.ack()

        async with Background("consumers") as background:
            consumers = [background.spawn(tag, consume(tag)) for tag in got]
            while len(await client.admin.groups.list_clients("g")) < 2:
                await CLOCK.sleep(0.05)
            async with client.producer("t") as producer:
                for number in range(COUNT):
                    for tag in got:
                        await producer.send(Message(b"%d" % number, tag=tag))
            await asyncio.gather(*consumers)
        assert {tag: sorted(map(int, bodies)) for tag, bodies in got.items()} == {tag: [*range(COUNT)] for tag in got}


async def bodies(client: PushClient, count: int) -> list[bytes]:
    """The next messages, acknowledged."""
    found: list[bytes] = []
    while len(found) < count:
        delivery = await client.delivery()
        if delivery.HasField("batch"):
            opened = open_batch(batch_of(delivery.batch))
            rows = memoryview(delivery.rows).cast("i").tolist() or range(opened.count)
            if len(rows) == opened.count:
                rows = range(opened.count)
            found += [opened.message(row).body for row in rows]
        await client.acknowledge(delivery)
    return found


async def test_a_pushed_queue_waits_at_a_message_of_another_member(tmp_path: Path) -> None:
    """It continues when the owner's filter selects the message, or when no other member wants it."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        async with PushClient(running, "g", "t", tags="old", client_id="a", from_beginning=True) as old:
            await old.queues(2)
            async with PushClient(running, "g", "t", tags="new", client_id="b", from_beginning=True) as new:
                await asyncio.gather(old.queues(1), new.queues(1))
                for queue_id in range(2):
                    for number, tag in enumerate(("old", "new", "old", "other", "new")):
                        body = f"{tag} {queue_id} {number}".encode()
                        await running.publish("t", body, tag=tag, queue=queue("t", queue_id))
                assert await bodies(old, 1) == [b"old 0 0"]
                await old.leave()
                everything = await bodies(new, 4)
                assert sorted(everything) == [b"new 0 1", b"new 0 4", b"new 1 1", b"new 1 4"]


async def test_a_pushed_queue_continues_when_its_owner_subscribes_to_the_message(tmp_path: Path) -> None:
    """The filters of the members are equal then."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        async with (
            PushClient(running, "g", "t", tags="x", client_id="a", from_beginning=True) as first,
            PushClient(running, "g", "t", tags="x || y", client_id="b", from_beginning=True) as second,
        ):
            await asyncio.gather(first.queues(1), second.queues(1))
            await running.publish("t", b"y", tag="y", queue=queue("t", 0))
            await running.publish("t", b"x", tag="x", queue=queue("t", 0))
            change = consumer_pb2.Subscription(topic="t", tag_expression="x || y", version=1)
            request = consumer_pb2.PushRequest(subscribe=consumer_pb2.Subscribe(subscriptions=[change]))
            await first.call.write(request)
            assert await bodies(first, 2) == [b"y", b"x"]

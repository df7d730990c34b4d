"""The product on both transports: a cluster in one event loop, with every way to send and receive."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, ConsumerSettings, Message, connect
from ortoo.common.grpc.transport import using_transport
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.conformance.wire import Wire

COUNT = 1_000
BODIES = {b"body %d" % number for number in range(COUNT)}
METADATA = (("x-mq-client-id", "a-client"), ("x-mq-language", "PYTHON"))
TOPIC, GROUP = Resource(name="t"), Resource(name="rocketmq")


@pytest.fixture
async def cluster(wire: Wire, tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One process of each role with the topic t, on this transport."""
    with using_transport(wire.transport):
        async with open_cluster(tmp_path) as opened:
            await opened.create_topic("t")
            yield opened


async def send(mq: Client) -> None:
    """Send all messages."""
    async with mq.producer("t") as producer:
        await (await producer.send_many([Message(body) for body in sorted(BODIES)]))


async def test_pushed_messages(wire: Wire, cluster: InProcessCluster) -> None:
    """A thousand messages of the native producer are pushed to a consumer and acknowledged, each once."""
    with using_transport(wire.transport):
        async with asyncio.timeout(60), connect(cluster.address) as mq:
            await send(mq)
            found: list[bytes] = []
            async with mq.consumer("push", "t", ConsumerSettings(from_beginning=True)) as consumer:
                async for message in consumer:
                    found.append(message.message().body)
                    message.ack()
                    if len(found) == COUNT:
                        break
            assert (len(found), set(found)) == (COUNT, BODIES)
            assert (await mq.admin.describe_lag("push", "t")).lag_messages == 0


async def test_popped_messages(wire: Wire, cluster: InProcessCluster) -> None:
    """A thousand messages are popped and acknowledged, each once."""
    with using_transport(wire.transport):
        async with asyncio.timeout(60), connect(cluster.address) as mq:
            await send(mq)
            found: list[bytes] = []
            done = asyncio.Event()

            async def handle(message: Any) -> None:
                found.append(message.body)
                if len(found) == COUNT:
                    done.set()

            async with mq.pop_consumer("pop", "t") as consumer:
                running = asyncio.get_running_loop().create_task(consumer.run(handle, concurrency=8))
                await done.wait()
                running.cancel()
                await asyncio.wait({running})
            assert (len(found), set(found)) == (COUNT, BODIES)


async def test_messages_of_rocketmq_stubs(wire: Wire, cluster: InProcessCluster) -> None:
    """A thousand messages are sent, received and acknowledged with the generated stubs of RocketMQ's protocol."""
    channel = wire.channel(cluster.address)
    stub: Any = MessagingServiceStub(channel)

    async def send_some(bodies: list[bytes]) -> None:
        messages = [
            d.Message(
                topic=TOPIC,
                system_properties=d.SystemProperties(message_id=f"01{int(body.split()[1]):032X}"),
                body=body,
            )
            for body in bodies
        ]
        answer = await stub.SendMessage(s.SendMessageRequest(messages=messages), metadata=METADATA)
        assert answer.status.code == Code.OK, answer.status

    async def receive(queue: d.MessageQueue, found: list[bytes]) -> None:
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=queue,
            filter_expression=d.FilterExpression(expression="*"),
            batch_size=32,
            invisible_duration=Duration(seconds=60),
            long_polling_timeout=Duration(nanos=200_000_000),
        )
        messages = [
            answer.message
            async for answer in stub.ReceiveMessage(request, metadata=METADATA, timeout=30)
            if answer.WhichOneof("content") == "message"
        ]
        if messages:
            entries = [
                s.AckMessageEntry(
                    message_id=one.system_properties.message_id, receipt_handle=one.system_properties.receipt_handle
                )
                for one in messages
            ]
            acked = await stub.AckMessage(
                s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=entries), metadata=METADATA
            )
            assert acked.status.code == Code.OK
            found += [one.body for one in messages]

    async with asyncio.timeout(60):
        bodies = sorted(BODIES)
        await asyncio.gather(*(send_some(bodies[begin : begin + 10]) for begin in range(0, COUNT, 10)))
        route = await stub.QueryRoute(s.QueryRouteRequest(topic=TOPIC), metadata=METADATA)
        found: list[bytes] = []
        while len(found) < COUNT:
            for queue in route.message_queues:
                await receive(queue, found)
    assert (len(found), set(found)) == (COUNT, BODIES)
    await channel.close()

"""An enode that accepts no messages: routes leave it out, and messages sent to it go to another at once."""

import asyncio

import pytest

from apache.rocketmq.v2 import definition_pb2 as words
from apache.rocketmq.v2 import service_pb2 as calls
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, OrtooError, ProducerSettings
from ortoo.common.grpc.channels import Channels
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import EnodeMachine
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from tests.simulation.scripted_cluster import ScriptedCluster, play

SENDS = 400
BODY = b"m" * 2_000
"""A segment of a simulated enode is full after some thirty of these, so that a full disk comes soon."""


async def publish(client: Client, body: bytes) -> None:
    """Send by one call, as a program without our client does."""
    request = producer_pb2.PublishRequest(topic="t", messages=[record_pb2.Message(body=body)])
    await client.admin._connection.call(ProducerServiceStub, "Publish", request)


async def send_message(stub: MessagingServiceStub, number: int) -> None:
    """Send by one call of RocketMQ's protocol."""
    system = words.SystemProperties(message_id=f"{number}", message_type=words.NORMAL)
    message = words.Message(topic=words.Resource(name="t"), system_properties=system, body=BODY)
    headers = (("x-mq-client-id", "rocket"), ("x-mq-language", "JAVA"))
    answer = await stub.SendMessage(calls.SendMessageRequest(messages=[message]), metadata=headers)
    assert answer.status.code == words.OK, answer.status


def fill(enode: EnodeMachine) -> int:
    """Leave no space for another segment; returns the free space before."""
    platter = enode.disk.current.platter
    room, platter.capacity_bytes = platter.capacity_bytes, platter.image.used_bytes()
    return room


def test_a_full_enode_among_two_delays_no_send_by_more_than_a_second() -> None:
    """No send of either protocol fails or waits for more than 1 s; sends return to it when there is space."""

    async def script(stage: ScriptedCluster) -> None:
        enode = stage.cluster.enodes[0]
        longest_s = 0.0
        async with stage.connect("app") as client, Channels() as channels:
            await client.admin.ensure_topic("t", queue_count=2)
            rocketmq = MessagingServiceStub(channels.channel_to(stage.cluster.addresses[0]))

            async def timed(number: int) -> None:
                nonlocal longest_s
                begun_s = stage.clock.monotonic_s()
                match number % 3:
                    case 0:
                        await producer.send(BODY)
                    case 1:
                        await publish(client, BODY)
                    case _:
                        await send_message(rocketmq, number)
                longest_s = max(longest_s, stage.clock.monotonic_s() - begun_s)

            async with client.producer("t") as producer:
                await producer.send(BODY)
                room = fill(enode)
                async with asyncio.TaskGroup() as sends:
                    for number in range(SENDS):
                        sends.create_task(timed(number))  # a task of the test, in a group
                        await stage.clock.sleep(0.02)
                assert longest_s < 1.0
                [full] = [one for one in (await client.admin.describe_cluster()).enodes if one.write_refusal]
                assert (full.name, full.alive) == (enode.name, True)
                assert "the disk is full" in full.write_refusal
                enode.disk.current.platter.capacity_bytes = room
                while any(one.write_refusal for one in (await client.admin.describe_cluster()).enodes):
                    await stage.clock.sleep(0.1)
                before = await ends(client, enode.name)
                for _ in range(20):
                    await producer.send(BODY)
                    await stage.clock.sleep(2)
                assert await ends(client, enode.name) > before

    async def ends(client: Client, name: str) -> int:
        queues = (await client.admin.describe_topic("t")).queues
        return sum(one.end_offset for one in queues if one.queue.enode == name)

    play(script, shape=ClusterShape(enodes=2, snodes=1))


def test_a_refusal_is_told_in_the_words_of_the_enode() -> None:
    """Where no enode accepts messages, a caller gets the reason: a call at once, a producer at its timeout."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t", ProducerSettings(delivery_timeout_ms=5_000)) as producer:
                await producer.send(BODY)
                room = fill(stage.cluster.enodes[0])
                with pytest.raises(OrtooError, match="the disk is full"):
                    for _ in range(100):
                        await publish(client, BODY)
                with pytest.raises(OrtooError, match=r"not stored within 5 s by enode-0.*last error: the disk is full"):
                    await producer.send(BODY)
            stage.cluster.enodes[0].disk.current.platter.capacity_bytes = room

    play(script)

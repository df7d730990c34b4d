"""Messages that were received before are sent again without the properties that only servers write."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Invalid, Message, connect
from ortoo.v1 import producer_pb2, pull_pb2, record_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.command import run as run_command
from tests.integration.snode_calls import open_snode_cluster

FORGED = {"RETRY_TOPIC": "secret", "ORIGIN_MESSAGE_ID": "m", "CORRELATION_ID": "0"}
WHO = (("x-mq-client-id", "c"),)


async def test_no_protocol_takes_a_system_property(tmp_path: Path) -> None:
    """Publish, BeginTransaction and SendMessage refuse the message."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.topic("t")
        messages = [record_pb2.Message(body=b"x", properties=FORGED)]
        channel = snode.cluster.channels.channel_to(snode.cluster.address)
        producer = ProducerServiceStub(channel)
        native: list[Any] = [
            producer.Publish(producer_pb2.PublishRequest(topic="t", messages=messages)),
            producer.BeginTransaction(
                producer_pb2.BeginTransactionRequest(topic="t", messages=messages, producer_group="p")
            ),
        ]
        for call in native:
            with pytest.raises(grpc.aio.AioRpcError, match="only the servers write the property"):
                await call
        for name in ("RETRY_TOPIC", "RECONSUME_TIMES", "DLQ_REASON", "TTL"):
            system = d.SystemProperties(message_type=d.NORMAL, message_id="m")
            sent = d.Message(
                topic=d.Resource(name="t"), system_properties=system, body=b"x", user_properties={name: "v"}
            )
            answer = await MessagingServiceStub(channel).SendMessage(
                s.SendMessageRequest(messages=[sent]), metadata=WHO
            )
            assert answer.status.code == d.ILLEGAL_MESSAGE_PROPERTY_KEY, name


async def test_retries_and_dead_letters_are_forwarded(tmp_path: Path) -> None:
    """`message()` and `messages()` of a received message, and the message of a dead letter, can be sent."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        for name in ("jobs", "copies"):
            await cluster.create_topic(name, queues=1)
        stub = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        place = topic_pb2.Queue(topic="jobs", enode="enode-0", queue_id=0)
        async with mq.producer("jobs") as producer, mq.producer("copies") as copies:
            await producer.send(Message(b"a", properties={"k": "v"}))
            await stub.NackMessages(pull_pb2.NackMessagesRequest(group="g", queue=place, offsets=[0], delay_level=1))
            async with mq.pop_consumer("g", "%RETRY%g") as consumer:
                [retried] = await consumer.pop()
                assert (retried.origin_topic, retried.properties["RECONSUME_TIMES"]) == ("jobs", "1")
                assert [dict(one.properties) for one in retried.lease.batch.messages()] == [{"k": "v"}]
                await copies.send(retried.message())
                await retried.park("wrong")
            [letter] = [one async for one in mq.admin.list_dead_letters("g")]
            await copies.send(letter.message)
            [found] = [one async for one in mq.admin.tail("%DLQ%g", from_beginning=True, follow=False)]
            assert found.message.properties["DLQ_ORIGIN_TOPIC"] == "jobs", "an operator sees what servers wrote"
            with pytest.raises(Invalid, match="without_system_properties"):
                await copies.send(found.message)
            await copies.send(found.message.without_system_properties())
        stored = [one.message async for one in mq.admin.tail("copies", from_beginning=True, follow=False)]
        assert [dict(one.properties) for one in stored] == [{"k": "v"}] * 3


async def test_dead_letters_are_replayed_to_another_topic_without_them(tmp_path: Path) -> None:
    """`ortoo dlq replay --to`: the message is a new one there. In the group's retry topic it keeps its origin."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        for name in ("jobs", "copies"):
            await cluster.create_topic(name, queues=1)
        async with mq.producer("jobs") as producer:
            await producer.send_many([Message(b"a", properties={"k": "v"}), Message(b"b")])
        async with mq.pop_consumer("g", "jobs") as consumer:
            for message in await consumer.pop():
                await message.park("wrong")
        command = ("ortoo", "dlq", "replay", "g", "--to", "copies", "--where", "k = 'v'")
        assert "1 message sent again" in (await run_command(command, cluster.address)).stdout
        async with mq.pop_consumer("h", "copies") as consumer:
            [copy] = await consumer.pop()
            assert (copy.origin_topic, copy.attempt, dict(copy.properties)) == ("copies", 1, {"k": "v"})
            await copy.park("still wrong")
        [letter] = [one async for one in mq.admin.list_dead_letters("h")]
        assert letter.origin_queue.topic == "copies"
        [_] = [one async for one in mq.admin.replay_dead_letters("g") if one.done]
        async with mq.pop_consumer("g", "%RETRY%g") as consumer:
            [again] = await consumer.pop()
            assert (again.origin_topic, again.body) == ("jobs", b"b")

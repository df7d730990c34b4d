"""The promises to RocketMQ's clients about leases, order, polls, namespaces and unsupported messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.common.grpc.channels import Channels
from ortoo.testing.pytest_broker import Broker
from tests.integration.pull_group import beside

pytestmark = pytest.mark.ortoo
EVERYTHING = d.FilterExpression(type=d.TAG, expression="*")


@dataclass
class Rocket:
    """A client over its generated stub."""

    stub: MessagingServiceStub
    group: Resource
    topic: Resource
    headers: tuple[tuple[str, str], ...] = (("x-mq-client-id", "rocket-1"), ("x-mq-language", "JAVA"))

    async def receive(self, *, timeout_s: float = 8, **changed: Any) -> tuple[d.Status, list[d.Message]]:
        """One poll."""
        fields = {"invisible_duration": Duration(seconds=10), "long_polling_timeout": Duration(seconds=2)} | changed
        request = s.ReceiveMessageRequest(
            group=self.group,
            message_queue=d.MessageQueue(topic=self.topic, id=-1),
            filter_expression=EVERYTHING,
            batch_size=16,
        )
        for name, value in fields.items():
            if isinstance(value, Duration):
                getattr(request, name).CopyFrom(value)
            elif value is not None:
                setattr(request, name, value)
        frames = [one async for one in self.stub.ReceiveMessage(request, metadata=self.headers, timeout=timeout_s)]
        return frames[0].status, [one.message for one in frames if one.HasField("message")]

    async def ack(self, message: d.Message) -> int:
        """The code of an acknowledgement."""
        entry = s.AckMessageEntry(receipt_handle=message.system_properties.receipt_handle)
        request = s.AckMessageRequest(group=self.group, topic=self.topic, entries=[entry])
        answer = await self.stub.AckMessage(request, metadata=self.headers, timeout=8)
        return answer.entries[0].status.code

    async def change(self, message: d.Message, seconds: int) -> int:
        """The code of a change of the invisible time."""
        request = s.ChangeInvisibleDurationRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=message.system_properties.receipt_handle,
            invisible_duration=Duration(seconds=seconds),
        )
        answer = await self.stub.ChangeInvisibleDuration(request, metadata=self.headers, timeout=8)
        return answer.status.code


@asynccontextmanager
async def rocket(topic: str = "one", **resource: str) -> AsyncIterator[Rocket]:
    """A client of the broker."""
    async with connect() as mq, Channels() as channels:
        stub = MessagingServiceStub(channels.channel_to(mq._connection.address))
        yield Rocket(stub, Resource(name="g", **resource), Resource(name=topic, **resource))


async def test_what_is_over_is_refused(broker: Broker) -> None:
    """An ack after the lease, and a change after an ack, are refused; a second ack succeeds."""
    await broker.create_topic("one", queues=1)
    await broker.send("one", b"a", b"b")
    async with rocket() as client:
        _, [late, done] = await client.receive()
        assert await client.ack(done) == Code.OK
        assert await client.change(done, 20) == Code.INVALID_RECEIPT_HANDLE
        assert await client.ack(done) == Code.OK
        assert await client.change(late, 10) == Code.OK
        await broker.clock.advance("11s")
        assert await client.ack(late) == Code.INVALID_RECEIPT_HANDLE
        assert await client.change(late, 10) == Code.INVALID_RECEIPT_HANDLE
        _, [again] = await client.receive()
        assert (again.body, again.system_properties.delivery_attempt) == (late.body, 2)
        assert await client.ack(again) == Code.OK


async def test_a_simple_consumer_gets_a_message_group_in_batches_and_nobody_else_meanwhile(broker: Broker) -> None:
    """G5: sixteen of a message group come at once, in order. The next comes only when none before it is leased."""
    await broker.create_topic("one", queues=1)
    await broker.send("one", *[Message(b"%d" % n, message_group="k") for n in range(20)], Message(b"x"))
    async with rocket() as client:
        _, first = await client.receive()
        assert [one.body for one in first] == [b"%d" % n for n in range(15)] + [b"x"]
        _, others = await client.receive()
        assert others == []
        for one in first[1:]:
            assert await client.ack(one) == Code.OK
        _, others = await client.receive()
        assert others == []
        assert await client.ack(first[0]) == Code.OK
        _, rest = await client.receive()
        assert [one.body for one in rest] == [b"%d" % n for n in range(15, 20)]
        # Unacknowledged messages come again in the same order, with those behind them.
        assert await client.ack(rest[0]) == Code.OK
        await broker.clock.advance("11s")
        _, again = await client.receive()
        assert [one.body for one in again] == [b"%d" % n for n in range(16, 20)]


async def test_a_listener_gets_a_message_group_one_by_one(broker: Broker) -> None:
    """A push consumer's listeners run concurrently, so a message waits for the one before."""
    await broker.create_topic("one", queues=1)
    await broker.send("one", *[Message(b"%d" % n, message_group="k") for n in range(3)])
    async with rocket() as client:
        for n in range(3):
            _, [one] = await client.receive(auto_renew=True)
            assert one.body == b"%d" % n
            assert await client.ack(one) == Code.OK


async def test_a_poll_that_names_no_time_is_answered_well_before_its_deadline(broker: Broker) -> None:
    """Half of the client's request timeout is left; such clients treat a late answer as an error."""
    await broker.create_topic("one", queues=1)
    async with rocket() as client:
        begun_ms = broker.clock.now_ms()
        status, found = await client.receive(timeout_s=8, long_polling_timeout=None)
        assert (status.code, found) == (Code.MESSAGE_NOT_FOUND, [])
        assert 6_000 <= broker.clock.now_ms() - begun_ms <= 6_700


async def test_tenants_with_one_name_share_nothing(broker: Broker) -> None:
    """Topic t of namespace a is a%t, and its group a%g; clients see the names that they gave."""
    for name in ("a%one", "b%one", "one"):
        await broker.create_topic(name, queues=1)
    async with rocket(resource_namespace="a") as one, rocket(resource_namespace="b") as other, rocket() as plain:
        sent = d.Message(topic=one.topic, body=b"secret", system_properties=d.SystemProperties(message_id="i"))
        answer = await one.stub.SendMessage(s.SendMessageRequest(messages=[sent]), metadata=one.headers, timeout=8)
        assert answer.status.code == Code.OK
        assert [stored.message.body for stored in await broker.messages("a%one")] == [b"secret"]
        assert (await other.receive())[1] == (await plain.receive())[1] == []
        _, [found] = await one.receive()
        assert (found.topic.resource_namespace, found.topic.name) == ("a", "one")
        assert await one.ack(found) == Code.OK
        route = await one.stub.QueryRoute(s.QueryRouteRequest(topic=one.topic), metadata=one.headers, timeout=8)
        assert {(q.topic.resource_namespace, q.topic.name) for q in route.message_queues} == {("a", "one")}
        # Node.js sends the namespace of a consumer in the header only.
        bare = Rocket(one.stub, Resource(name="g"), Resource(name="one"), (*one.headers, ("x-mq-namespace", "a")))
        await broker.send("a%one", b"more")
        _, [found] = await bare.receive()
        assert (found.topic.name, found.body) == ("one", b"more")


async def test_the_message_of_a_killed_push_consumer_comes_back_within_a_minute(broker: Broker) -> None:
    """Its connection ends at once, so that the server renews its lease no longer than for a reconnecting client."""
    await broker.create_topic("one")
    await broker.send("one", b"x")
    settings = d.Settings(
        client_type=d.PUSH_CONSUMER,
        subscription=d.Subscription(
            group=Resource(name="g"),
            subscriptions=[d.SubscriptionEntry(topic=Resource(name="one"), expression=EVERYTHING)],
        ),
    )
    async with rocket() as dying, rocket() as other:
        telemetry = dying.stub.Telemetry(metadata=dying.headers)
        await telemetry.write(s.TelemetryCommand(settings=settings))
        await telemetry.read()
        _, (message,) = await dying.receive(auto_renew=True, invisible_duration=None)
        assert message.body == b"x"
        telemetry.cancel()
        other.headers = (("x-mq-client-id", "rocket-2"), ("x-mq-language", "JAVA"))
        waited_s = 0
        while not (again := (await other.receive(auto_renew=True, invisible_duration=None))[1]):
            waited_s += 2
            assert waited_s < 60
        assert again[0].body == b"x"


async def test_a_client_that_leaves_ends_its_polls(broker: Broker) -> None:
    """A program with seven parked polls closes at once. The next message goes to another client, at its first attempt.

    Polls of other clients stay open.
    """
    await broker.create_topic("one", queues=1)
    async with rocket() as leaving, rocket() as other:
        other.headers = (("x-mq-client-id", "rocket-2"), ("x-mq-language", "JAVA"))
        twenty = Duration(seconds=20)
        polls = [beside(leaving.receive(timeout_s=25, long_polling_timeout=twenty)) for _ in range(7)]
        staying = beside(other.receive(timeout_s=25, long_polling_timeout=twenty))
        await broker.clock.advance("2s")
        begun_ms = broker.clock.now_ms()
        request = s.NotifyClientTerminationRequest(group=leaving.group)
        answer = await leaving.stub.NotifyClientTermination(request, metadata=leaving.headers, timeout=8)
        assert answer.status.code == Code.OK
        for status, found in await asyncio.gather(*polls):
            assert (status.code, found) == (Code.MESSAGE_NOT_FOUND, [])
        assert broker.clock.now_ms() - begun_ms < 1_000
        assert not staying.done()
        await broker.send("one", b"next")
        _, [message] = await staying
        assert (message.body, message.system_properties.delivery_attempt) == (b"next", 1)

"""The axes of growth: how a simulated cluster gets N of something, and the changes that are measured beside them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import sqlalchemy as sa

from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import (
    Client,
    ConsumerSettings,
    Message,
    PopSettings,
    Producer,
    TransactionalProducer,
    TransactionCheck,
    TransactionVerdict,
)
from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.grpc.channels import Channels
from ortoo.enode.app import RunningEnode
from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.topics import Topic
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.world import World
from tests.integration.lite_client import LiteClient
from tests.simulation.scripted_cluster import ScriptedCluster

ENODE = "enode-0"
TOPIC, GROUP = "t", "g"
ELSEWHERE = "elsewhere"
"""A snode that is alive in Redis and does not exist."""
FAR_MS = 30 * 86_400_000
OFFSETS_AT_ONCE = 500
BATCH = 50


@dataclass
class Stand:
    """A running cluster with a client, an open producer of `TOPIC`, and other open objects of an axis."""

    stage: ScriptedCluster
    client: Client
    producer: Producer
    open: AsyncExitStack
    """Closes the objects of the axis at the end."""
    transactions: TransactionalProducer | None = None
    lite: LiteClient | None = None

    @property
    def far_ms(self) -> int:
        """A time that does not come in a run."""
        return self.stage.clock.now_ms() + FAR_MS


Change = Callable[[Stand, int], Awaitable[object]]
"""Makes one change; the number is different for each."""


def one_of_each(_: int) -> ClusterShape:
    """A name server, an enode and a snode."""
    return ClusterShape(enodes=1, snodes=1)


@dataclass(frozen=True)
class Axis:
    """One kind of thing that a cluster may have many of."""

    few: int
    """The small number N; the other one is 4 N."""
    changes: Mapping[str, Change]
    shape: Callable[[int], ClusterShape] = one_of_each
    store: Callable[[World, int], object] = lambda world, count: None
    """Puts `count` of them into the database before the start."""
    fill: Callable[[Stand, int], Awaitable[object]] | None = None
    """Makes `count` of them by the calls of clients."""
    is_fill_counted: bool = True
    """Whether roles do work for `fill`, and not only the test."""
    restarts: bool = True
    """Whether the cost of a restart of each role is measured."""
    queue_count: int = 2
    """Of `TOPIC`."""


# Contents of the database.


def store_topics(world: World, count: int, prefix: str = "many") -> None:
    """Topics with queues on the first enode."""
    placements = PlacementSet.of((Placement(ENODE, 2, 2),))
    known = [Topic(f"{prefix}-{at}", at, 1, Permission.READ_WRITE, placements, 1) for at in range(1, count + 1)]
    table = tables.placement_sets
    with world.database.engine.begin() as connection:
        connection.execute(sa.insert(tables.topics), [tables.row_of(tables.topics, one) for one in known])
        connection.execute(
            sa.insert(table), [tables.row_of(table, one, set_id=placements.set_id) for one in placements]
        )


def store_deleted_topics(world: World, count: int) -> None:
    """Deleted topics that can be restored for the whole run."""
    placements = PlacementSet.of((Placement(ENODE, 2, 2),))
    table, given = tables.deleted_topics, {"deleted_at_ms": 1, "due_at_ms": 1 << 50, "is_due": False}
    known = [Topic(f"old-{at}", at, 1, Permission.READ_WRITE, placements, 1) for at in range(1, count + 1)]
    with world.database.engine.begin() as connection:
        connection.execute(sa.insert(table), [tables.row_of(table, one, **given) for one in known])
        table = tables.placement_sets
        connection.execute(
            sa.insert(table), [tables.row_of(table, one, set_id=placements.set_id) for one in placements]
        )


def store_groups(world: World, count: int) -> None:
    """Groups with the default settings."""
    known = [Group(f"many-{at}", 1) for at in range(count)]
    with world.database.engine.begin() as connection:
        connection.execute(sa.insert(tables.groups), [tables.row_of(tables.groups, one) for one in known])


# Contents that clients make.


async def commit_groups(stand: Stand, count: int) -> None:
    """Give each group an offset."""
    running = stand.stage.cluster.enodes[0].running
    assert isinstance(running, RunningEnode)
    assert running.process.driver is not None
    engine = running.process.driver.log.engine
    topic_id = next(one.topic_id for one in engine.state.topics.all() if one.name == TOPIC)
    for first in range(0, count, OFFSETS_AT_ONCE):
        numbers = range(first, min(count, first + OFFSETS_AT_ONCE))
        await engine.store([OffsetsCommitted(topic_id, f"many-{at}", 0, ((0, 0),)) for at in numbers])


async def send_delayed(stand: Stand, count: int) -> None:
    """Delayed messages that are not due in the run."""
    far_ms = stand.far_ms
    await stand.producer.send_many(Message(b"later", deliver_at_ms=far_ms + at) for at in range(count))
    await stand.producer.flush()


async def begin_transactions(stand: Stand, count: int) -> None:
    """Transactions without a verdict."""

    async def undecided(_: TransactionCheck) -> TransactionVerdict:
        return TransactionVerdict.UNKNOWN

    producer = stand.client.transactional_producer(TOPIC, "billing", undecided)
    stand.transactions = await stand.open.enter_async_context(producer)
    for first in range(0, count, BATCH):
        async with asyncio.TaskGroup() as group:
            for _ in range(first, min(count, first + BATCH)):
                group.create_task(stand.transactions.begin(Message(b"half"), check_after_ms=FAR_MS // 100))


async def make_dead_letters(stand: Stand, count: int) -> None:
    """Messages of a group that allows one attempt, nacked until the topic for dead letters exists and has them."""
    await stand.client.admin.groups.update(GROUP, attempts_max=1)
    async with stand.client.pop_consumer(GROUP, TOPIC, "*", PopSettings(wait_ms=3_000.0)) as consumer:
        await stand.producer.send_many([b"bad"] * count)
        await stand.producer.flush()
        while found := await consumer.pop(BATCH):
            for message in found:
                await message.nack()


async def nack_many(stand: Stand, count: int) -> None:
    """Messages that consumers have nacked with a reason, and that are delivered again after the run."""
    async with stand.client.pop_consumer(GROUP, TOPIC, "*", PopSettings(wait_ms=3_000.0)) as consumer:
        await stand.producer.send_many([b"bad"] * count)
        await stand.producer.flush()
        while found := await consumer.pop(BATCH):
            await asyncio.gather(*(message.nack(3_600_000.0, error="not yet") for message in found))


async def open_sessions(stand: Stand, count: int) -> None:
    """Push consumers, each in a group of its own with a topic of its own."""
    for at in range(1, count + 1):
        await _enter(stand, f"many-{at}", f"many-{at}")


async def open_members(stand: Stand, count: int) -> None:
    """Push consumers of one group."""
    for at in range(count):
        await _enter(stand, "crowd", TOPIC, f"member-{at}")


async def connect_clients(stand: Stand, count: int) -> None:
    """Clients, each with its own connection and an open producer."""
    for at in range(count):
        client = await stand.open.enter_async_context(stand.stage.connect(f"many-{at}"))
        producer = await stand.open.enter_async_context(client.producer(TOPIC))
        await producer.send(b"hello")


async def store_members(stand: Stand, count: int) -> None:
    """Members of other groups at another snode, two in each group, written to Redis."""
    redis = stand.stage.world.redis.client("redis://redis")
    await redis.zadd("ortoo/alive", {ELSEWHERE: 9e15})
    for first in range(0, count, 2):
        group = f"many-{first}"
        members = [
            GroupMember(f"c{at}", f"session {at}", ELSEWHERE, ELSEWHERE, (Subscription("t"),))
            for at in (first, first + 1)
        ]
        texts = {one.client_id: f"{at + 1} {one.encode()}" for at, one in enumerate(members)}
        await redis.hset(f"ortoo/members/{group}", mapping=texts)
        await redis.sadd("ortoo/groups", group)
        await redis.hset("ortoo/versions", group, 2)
    await redis.aclose()


async def send_lite(stand: Stand, count: int) -> None:
    """Lite topics of one parent, each with a message."""
    channels = await stand.open.enter_async_context(Channels())
    stand.lite = LiteClient(MessagingServiceStub(channels.channel_to(stand.stage.cluster.addresses[0])))
    for first in range(0, count, BATCH):
        numbers = range(first, min(count, first + BATCH))
        await stand.lite.send(*((f"many-{at}", b"m%d" % at) for at in numbers), topic="parent")


# Changes.


async def _enter(stand: Stand, group: str, topic: str, client_id: str = "") -> None:
    settings = ConsumerSettings(from_beginning=True, client_id=client_id or group)
    await stand.open.enter_async_context(stand.client.consumer(group, {topic: "*"}, settings))


async def send(stand: Stand, number: int) -> None:
    """Send one message."""
    await stand.producer.send(b"message %03d" % number)


async def delay(stand: Stand, number: int) -> None:
    """Send one delayed message."""
    await stand.producer.send(Message(b"message %03d" % number, deliver_at_ms=stand.far_ms))


async def recall(stand: Stand, number: int) -> None:
    """Send one delayed message and recall it."""
    receipt = await stand.producer.send(Message(b"message %03d" % number, deliver_at_ms=stand.far_ms))
    await stand.client.recall(receipt.recall_handle)


async def transact(stand: Stand, number: int) -> None:
    """Begin and commit one transaction."""
    assert stand.transactions is not None
    transaction = await stand.transactions.begin(Message(b"message %03d" % number))
    await transaction.commit()


async def bury(stand: Stand, number: int) -> None:
    """Make one more dead letter."""
    async with stand.client.pop_consumer(GROUP, TOPIC) as consumer:
        await stand.producer.send(b"bad %03d" % number)
        for message in await consumer.pop(1, 2_000.0):
            await message.nack()


async def create_topic(stand: Stand, number: int) -> None:
    """Create a topic on the first enode."""
    await stand.client.admin.create_topic(f"new-{number:03}", enodes=[ENODE])


async def delete_topic(stand: Stand, number: int) -> None:
    """Create a topic and delete it."""
    await create_topic(stand, 500 + number)
    await stand.client.admin.delete_topic(f"new-{500 + number}")


async def put_group(stand: Stand, number: int) -> None:
    """Create a group."""
    await stand.client.admin.put_group(f"new-{number:03}")


async def consume(stand: Stand, number: int) -> None:
    """Join a group, receive a message, commit its offset, and leave."""
    settings = ConsumerSettings(from_beginning=True, client_id="joins")
    async with stand.client.consumer(f"joining-{number}", {TOPIC: "*"}, settings) as consumer:
        await stand.producer.send(b"message %03d" % number)
        async for message in consumer:
            message.ack()
            if message.body == b"message %03d" % number:
                break


async def join(stand: Stand, number: int) -> None:
    """Join the group of all members, and leave."""
    settings = ConsumerSettings(client_id="joins")
    async with stand.client.consumer("crowd", {TOPIC: "*"}, settings):
        await stand.stage.clock.sleep(1.0)


async def pop(stand: Stand, number: int) -> None:
    """Send a message, pop it and acknowledge it."""
    async with stand.client.pop_consumer(GROUP, TOPIC) as consumer:
        await stand.producer.send(b"message %03d" % number)
        for message in await consumer.pop(1, 2_000.0):
            await message.ack()


async def send_new_lite(stand: Stand, number: int) -> None:
    """Send to a new lite topic."""
    assert stand.lite is not None
    await stand.lite.send((f"new-{number:03}", b"n%d" % number), topic="parent")


async def send_old_lite(stand: Stand, number: int) -> None:
    """Send to a lite topic that exists."""
    assert stand.lite is not None
    await stand.lite.send((f"many-{number}", b"o%d" % number), topic="parent")


def _changes(made: Iterable[Change]) -> Mapping[str, Change]:
    return {one.__name__: one for one in made}


AXES: Mapping[str, Axis] = {
    "topics": Axis(250, _changes((create_topic, put_group, consume)), store=store_topics),
    "topics of two name servers": Axis(
        250,
        _changes((create_topic, put_group)),
        shape=lambda count: ClusterShape(name_servers=2, enodes=1, snodes=1),
        store=store_topics,
        restarts=False,
    ),
    "deleted topics": Axis(250, _changes((delete_topic,)), store=store_deleted_topics),
    "queues": Axis(
        32,
        _changes((create_topic, send)),
        fill=lambda stand, count: stand.client.admin.update_topic(
            TOPIC, read_queue_count=count, write_queue_count=count
        ),
    ),
    "groups": Axis(250, _changes((put_group, consume, pop)), store=store_groups, fill=commit_groups),
    "members of one group": Axis(4, _changes((join, send)), fill=open_members, restarts=False),
    "members of other groups": Axis(
        100,
        _changes((consume,)),
        shape=lambda count: ClusterShape(enodes=1, snodes=2),
        fill=store_members,
        is_fill_counted=False,
        restarts=False,
    ),
    "clients": Axis(8, _changes((create_topic, send)), fill=connect_clients, restarts=False),
    "sessions": Axis(8, _changes((send, consume)), store=store_topics, fill=open_sessions, restarts=False),
    "enodes": Axis(2, _changes((create_topic, put_group, send)), shape=lambda count: ClusterShape(1, count, 1)),
    "snodes": Axis(2, _changes((create_topic, put_group, send)), shape=lambda count: ClusterShape(1, 1, count)),
    "lite topics": Axis(40, _changes((send_new_lite, send_old_lite)), fill=send_lite),
    "delayed messages": Axis(250, _changes((delay, recall, send)), fill=send_delayed),
    "dead letters": Axis(50, _changes((bury, send)), fill=make_dead_letters),
    "nacked messages": Axis(250, _changes((pop, send)), fill=nack_many, queue_count=1),
    "open transactions": Axis(250, _changes((transact, send)), fill=begin_transactions),
}

"""Lite topics that expire, and exclusive ones, at snodes that do not know each other's clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, TopicInfo
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.namesrv.decisions import topics
from ortoo.snode.rocketmq.lite import expiry
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.integration.lite_client import ADD, COMPLETE, GROUP, TOPIC, LiteClient, bodies
from tests.simulation.scripted_cluster import ScriptedCluster, play

SHAPE = ClusterShape(enodes=2, snodes=2)
TTL_MS = 60_000


@dataclass
class Lite:
    """A parent topic, and a client at each snode that records its notifications."""

    stage: ScriptedCluster
    mq: Client
    clients: list[LiteClient]
    told: list[tuple[int, str]] = field(default_factory=list)
    """(client, lite topic) of ended subscriptions."""

    async def listen(self, number: int) -> None:
        """Record the messages of a client's telemetry stream, without end."""
        client = self.clients[number]
        call = client.stub.Telemetry(metadata=client.metadata)
        settings = d.Settings(client_type=d.LITE_SIMPLE_CONSUMER)
        settings.subscription.group.CopyFrom(GROUP)
        settings.subscription.subscriptions.add(topic=TOPIC)
        await call.write(s.TelemetryCommand(settings=settings))
        async for command in call:
            if command.HasField("notify_unsubscribe_lite_command"):
                self.told.append((number, command.notify_unsubscribe_lite_command.lite_topic))

    async def live(self, number: int, *names: str) -> None:
        """Let a client renew its subscriptions, without end."""
        while True:
            await self.stage.clock.sleep(30.0)
            await self.clients[number].live(*names)

    async def lite_topics(self) -> dict[str, TopicInfo]:
        """Existing lite topics, by name."""
        return {one.name[-1]: one for one in await self.mq.admin.list_topics() if one.name.startswith("%LMQ%")}

    async def until(self, holds: Callable[[dict[str, TopicInfo]], bool]) -> None:
        """Wait until a condition holds for the lite topics."""
        while not holds(await self.lite_topics()):
            await self.stage.clock.sleep(1.0)


@asynccontextmanager
async def lite(stage: ScriptedCluster) -> AsyncIterator[Lite]:
    """The clients, ready."""
    async with stage.connect("operator") as mq, Channels() as channels, Background("clients") as background:
        stubs = [MessagingServiceStub(channels.channel_to(address)) for address in stage.cluster.addresses]
        it = Lite(stage, mq, [LiteClient(stub, f"c{number}") for number, stub in enumerate(stubs)])
        await mq.admin.create_topic("t", message_type="lite", lite_ttl_ms=TTL_MS)
        for number in range(2):
            background.spawn("listen", it.listen(number))
        yield it


def played(script: Callable[[Lite], Awaitable[None]]) -> None:
    """Play with two snodes and two enodes."""

    async def whole(stage: ScriptedCluster) -> None:
        async with lite(stage) as it:
            await script(it)

    play(whole, shape=SHAPE)


def test_a_lite_topic_that_nobody_sends_to_ends_after_its_time() -> None:
    """Its subscriber is notified; its messages can be restored for a day. One with sends stays, with all messages."""

    async def script(it: Lite) -> None:
        one, other = it.clients
        assert await one.sync(ADD, "a", "b") == Code.OK
        await one.send(("a", b"a0"), ("b", b"b0"))
        sent = 0

        async def keep_alive() -> None:
            nonlocal sent
            while True:
                await it.stage.clock.sleep(20.0)
                sent += 1
                await other.send(("b", b"b%d" % sent))

        async with Background("clients") as background:
            background.spawn("keep alive", keep_alive())
            background.spawn("live", it.live(0, "a", "b"))
            began_s = it.stage.clock.monotonic_s()
            await it.until(lambda found: "a" not in found)
            # Its lifetime, a sweep that closes it, and the time in which all processes learn that.
            assert 120.0 <= it.stage.clock.monotonic_s() - began_s <= 160.0
            await it.stage.clock.sleep(75.0)
        assert it.told == [(0, "a")]
        assert set(await it.lite_topics()) == {"b"}
        [deleted] = await it.mq.admin.list_deleted_topics()
        assert deleted.topic.name == "%LMQ%|t|a"
        received: list[bytes] = []
        while len(received) <= sent:
            [found] = await one.receive(wait_s=5)
            received.append(found.body)
            await one.ack(found)
        assert received == [b"b%d" % number for number in range(sent + 1)]
        # A client that keeps renewing is subscribed: a waiting poll gets new messages.
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(one.receive(wait_s=20))
            await it.stage.clock.sleep(1.0)
            await other.send(("a", b"again"))
        assert bodies(waiting.result()) == [b"again"]

    played(script)


def test_lite_topics_end_after_their_time_beyond_those_that_a_snode_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snode deletes what it closed, also if it has read many other lite topics since."""
    monkeypatch.setattr(expiry, "TIMES_MAX", 1)

    async def script(it: Lite) -> None:
        one, _ = it.clients
        await one.send(*((name, name.encode()) for name in "abc"))
        began_s = it.stage.clock.monotonic_s()
        await it.until(lambda found: not found)
        assert 120.0 <= it.stage.clock.monotonic_s() - began_s <= 160.0
        assert len(await it.mq.admin.list_deleted_topics()) == 3

    played(script)


def test_a_lite_topic_beyond_the_limit_of_its_parent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says what to do. Existing lite topics accept messages, and a deleted one makes space."""
    monkeypatch.setattr(topics, "LITE_TOPICS_OF_PARENT_MAX", 2)

    async def script(it: Lite) -> None:
        one, other = it.clients
        await one.send(("a", b"a0"), ("b", b"b0"))
        refused = await other.send(("c", b"c0"))
        assert refused.status.code == Code.LITE_TOPIC_QUOTA_EXCEEDED
        assert "topic t has 2 lite topics, the maximum; delete unused ones" in refused.status.message
        assert (await other.send(("b", b"b1"))).entries[0].status.code == Code.OK
        await it.mq.admin.delete_topic("%LMQ%|t|a")
        assert (await other.send(("c", b"c1"))).entries[0].status.code == Code.OK

    played(script)


def test_lite_topics_end_after_the_name_servers_were_away() -> None:
    """No name server answers when they are due. A sender that opens one again then keeps it, with its message."""

    async def script(it: Lite) -> None:
        one, other = it.clients
        await one.send(*((name, name.encode()) for name in "abc"))
        await it.until(lambda found: all(topic.permission == "read_only" for topic in found.values()))
        for machine in it.stage.cluster.name_servers:
            machine.kill()
        await it.stage.clock.sleep(150.0)
        for machine in it.stage.cluster.name_servers:
            machine.start()
        while (await other.send(("a", b"a1"))).status.code != Code.OK:
            await it.stage.clock.sleep(0.1)
        await it.until(lambda found: found.keys() == {"a"})
        await it.stage.clock.sleep(40.0)
        assert set(await it.lite_topics()) == {"a"}
        assert await one.sync(ADD, "a") == Code.OK
        [first] = await one.receive(wait_s=10)
        assert await one.ack(first) == Code.OK
        assert bodies([first, *await one.receive(wait_s=10)]) == [b"a", b"a1"]
        await it.until(lambda found: not found)

    played(script)


def test_a_lite_topic_of_a_stopped_enode_delays_no_other() -> None:
    """It ends when its enode is back."""

    async def script(it: Lite) -> None:
        one, _ = it.clients
        await one.send(*((name, name.encode()) for name in "abcdef"))
        enodes = {name: found.placements[0].enode for name, found in (await it.lite_topics()).items()}
        away = it.stage.cluster.enodes[0]
        here = {name for name, enode in enodes.items() if enode != away.name}
        assert 0 < len(here) < len(enodes)
        await it.stage.clock.sleep(90.0)
        await away.stop()
        await it.until(lambda found: not found.keys() & here)
        assert set(await it.lite_topics()) == enodes.keys() - here
        away.start()
        await it.until(lambda found: not found)

    played(script)


def test_a_send_opens_a_lite_topic_whose_time_was_over() -> None:
    """Messages accepted while it is closed, until just before its deletion, are received."""

    async def script(it: Lite) -> None:
        one, other = it.clients
        await one.send(("a", b"a0"))
        for number in range(1, 4):
            await it.until(lambda found: found["a"].permission == "read_only")
            # Closed for a second, and until just before it would be deleted.
            await it.stage.clock.sleep((1.0, 30.0, 59.0)[number - 1])
            assert (await other.send(("a", b"a%d" % number))).entries[0].status.code == Code.OK
            await it.stage.clock.sleep(15.0)
        assert await one.sync(ADD, "a") == Code.OK
        for number in range(4):
            [found] = await one.receive(wait_s=5)
            assert found.body == b"a%d" % number
            await one.ack(found)
        assert (it.told, await it.mq.admin.list_deleted_topics()) == ([], [])

    played(script)


def test_lite_topics_are_open_again_when_their_lifetime_is_removed() -> None:
    """They were closed, and would be deleted a minute later; now they accept messages and stay."""

    async def script(it: Lite) -> None:
        one, other = it.clients
        await one.send(("a", b"a0"), ("b", b"b0"))
        await it.until(lambda found: all(topic.permission == "read_only" for topic in found.values()))
        await it.mq.admin.update_topic("t", lite_ttl_ms=0)
        await it.until(lambda found: all(topic.permission == "read_write" for topic in found.values()))
        await it.stage.clock.sleep(1.0)
        assert (await other.send(("a", b"a1"))).entries[0].status.code == Code.OK
        await it.stage.clock.sleep(3 * expiry.CLOSED_GRACE_S)
        assert {name: found.permission for name, found in (await it.lite_topics()).items()} == dict.fromkeys(
            "ab", "read_write"
        )
        assert await one.sync(ADD, "a") == Code.OK
        [first] = await one.receive(wait_s=10)
        assert await one.ack(first) == Code.OK
        assert bodies([first, *await one.receive(wait_s=10)]) == [b"a0", b"a1"]

    played(script)


def test_a_clock_that_is_set_wrong_ends_no_lite_topic() -> None:
    """A snode whose wall clock steps forward by a day deletes no recently sent unread message."""

    async def script(it: Lite) -> None:
        one, _ = it.clients
        await it.mq.admin.update_topic("t", lite_ttl_ms=60 * TTL_MS)
        await one.send(("a", b"a0"))
        await it.stage.clock.sleep(30.0)
        for machine in it.stage.cluster.machines:
            if machine.name.startswith("snode"):
                machine.clock.jump(86_400_000)
        await it.stage.clock.sleep(300.0)
        assert {name: found.permission for name, found in (await it.lite_topics()).items()} == {"a": "read_write"}
        assert await it.mq.admin.list_deleted_topics() == []

    played(script)


def test_a_clock_that_was_wrong_from_the_start_ends_no_lite_topic() -> None:
    """A snode whose wall clock is a day ahead at its first sweep asks enodes for their clocks."""

    async def script(it: Lite) -> None:
        one, _ = it.clients
        [ahead] = [machine for machine in it.stage.cluster.machines if machine.name == "snode-1"]
        ahead.clock.jump(86_400_000)
        await it.mq.admin.update_topic("t", lite_ttl_ms=60 * TTL_MS)
        await one.send(("a", b"a0"))
        await it.stage.clock.sleep(300.0)
        assert {one.permission for one in (await it.lite_topics()).values()} == {"read_write"}
        assert await it.mq.admin.list_deleted_topics() == []
        await it.mq.admin.update_topic("t", lite_ttl_ms=TTL_MS)
        await it.until(lambda found: not found)

    played(script)


def test_a_lite_topic_that_was_given_more_queues_ends_and_hinders_no_other() -> None:
    """Its subscriber is notified too."""

    async def script(it: Lite) -> None:
        one, _ = it.clients
        assert await one.sync(ADD, "a", "b") == Code.OK
        await one.send(("a", b"a0"), ("b", b"b0"))
        async with Background("clients") as background:
            background.spawn("live", it.live(0, "a", "b"))
            await it.mq.admin.update_topic("%LMQ%|t|a", read_queue_count=2)
            await it.until(lambda found: not found)
            await it.stage.clock.sleep(75.0)
        assert sorted(it.told) == [(0, "a"), (0, "b")]

    played(script)


def test_a_lite_topic_of_an_exclusive_group_is_for_who_subscribed_last() -> None:
    """At either snode; the previous subscriber is notified and gets nothing more, also in a waiting poll.

    It gets messages again after it subscribes again.
    """

    async def script(it: Lite) -> None:
        await it.mq.admin.groups.update("g", lite_exclusive=True)
        one, other = it.clients
        assert await one.sync(ADD, "a", "b") == Code.OK
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(one.receive(wait_s=20))
            await it.stage.clock.sleep(1.0)
            assert await other.sync(ADD, "a") == Code.OK
            await one.send(("a", b"a0"))
            assert bodies(await other.receive(wait_s=10)) == [b"a0"]
            await one.send(("b", b"b0"))
        assert bodies(waiting.result()) == [b"b0"]
        assert it.told == [(0, "a")]
        # It repeats its subscriptions, and is notified again.
        assert await one.sync(COMPLETE, "a", "b") == Code.OK
        assert await other.sync(COMPLETE, "a") == Code.OK
        await it.stage.clock.sleep(1.0)
        assert it.told == [(0, "a"), (0, "a")]
        # A new subscriber has it again, also the messages leased to the other one when it left.
        await other.stub.NotifyClientTermination(s.NotifyClientTerminationRequest(group=GROUP), metadata=other.metadata)
        assert await one.sync(ADD, "a") == Code.OK
        await it.stage.clock.sleep(25.0)
        assert bodies(await one.receive(wait_s=20)) == [b"a0"]

    played(script)

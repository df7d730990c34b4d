"""Pops that share their waits: an idle one asks no enode, and each message reaches a waiting consumer at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ortoo.client import Client, Message, PopSettings
from ortoo.common.process.background import Background
from ortoo.snode.pop.call import PopCall, PopResult, PopSource
from ortoo.snode.pop.source_pops import SourcePops
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.rolling_pops import MEMBERS, SHAPE, rolling_pops
from tests.simulation.scripted_cluster import ScriptedCluster, play

ENODES = 3
CONSUMERS = 6
WAIT_MS = 20_000
LONG_WAIT_S = 60.0
RETURN_S = 6.0
"""The limit for messages of an enode that has just returned, with the pause between two waits there."""
PROMPTLY_S = 0.5
"""The limit from the acknowledgement of a send to the delivery, with a consumer that has just gone in between."""


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waiting pops share their waits."""
    monkeypatch.setattr("ortoo.snode.pop.processor.DIRECT_POPS_MAX", 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The enodes that pops asked."""
    enodes: list[str] = []
    pop = SourcePops.pop

    async def counted(self: SourcePops, source: PopSource, call: PopCall) -> PopResult:
        enodes.append(source.enode)
        return await pop(self, source, call)

    monkeypatch.setattr(SourcePops, "pop", counted)
    return enodes


@pytest.mark.parametrize("shape", [SHAPE, MEMBERS])
def test_restarts_lose_no_message_and_burn_no_attempt(shape: ClusterShape) -> None:
    """Also when another replica becomes leader."""
    assert rolling_pops(3, shape)


class Consumers:
    """Consumers of one group at both snodes. They pop and acknowledge, and some leave and come back."""

    def __init__(self, stage: ScriptedCluster) -> None:
        self.received: dict[bytes, float] = {}
        """Body to the time of its first delivery."""
        self.by: dict[int, int] = dict.fromkeys(range(CONSUMERS), 0)
        """Consumer to its number of messages."""
        self._stage = stage
        self._chance = stage.world.random_streams.stream("consumers")

    async def pop(self, number: int, client: Client, *, leaves: bool) -> None:
        """Pop without end; a consumer that `leaves` cancels its pops at random times."""
        settings = PopSettings(invisible_ms=30_000, wait_ms=WAIT_MS, messages_max=2)
        while True:
            async with client.pop_consumer("g", "t", settings=settings) as consumer:
                try:
                    async with asyncio.timeout(self._chance.uniform(0.05, 3.0) if leaves else None):
                        while True:
                            for message in await consumer.pop():
                                self.received.setdefault(message.body, self._stage.clock.monotonic_s())
                                self.by[number] += 1
                                await message.ack()
                except TimeoutError:
                    continue


def test_each_message_reaches_a_waiting_consumer_promptly(asked: list[str]) -> None:
    """From any enode, at any snode, while other consumers leave. Meanwhile idle pops ask no enode."""

    async def script(stage: ScriptedCluster) -> None:
        chance = stage.world.random_streams.stream("load")
        consumers = Consumers(stage)
        async with stage.connect("app") as app, stage.connect("other") as other, Background("load") as background:
            await app.admin.ensure_topic("t", queue_count=2)
            for number in range(CONSUMERS):
                client = (app, other)[number % 2]
                background.spawn("pop", consumers.pop(number, client, leaves=number >= CONSUMERS - 2))
            async with app.producer("t") as producer:
                for number in range(60):
                    await stage.clock.sleep(chance.uniform(0.0, 1.0))
                    bodies = [b"%d-%d" % (number, at) for at in range(1 + chance.below(7))]
                    await asyncio.gather(*map(producer.send, bodies))
                    sent_s = stage.clock.monotonic_s()
                    await stage.clock.sleep(PROMPTLY_S)
                    late = [body for body in bodies if consumers.received.get(body, 1e9) > sent_s + PROMPTLY_S]
                    assert not late, f"{late} came late or not at all"
        assert all(consumers.by.values()), f"some consumer got no message: {consumers.by}"

    play(script, shape=ClusterShape(enodes=ENODES, snodes=2))


@asynccontextmanager
async def polling(stage: ScriptedCluster, *, apart_s: float = 0.0) -> AsyncIterator[tuple[Consumers, Client]]:
    """Consumers of a new topic that stay, with their client. Each begins `apart_s` after the one before."""
    consumers = Consumers(stage)
    async with stage.connect("app") as client, Background("load") as background:
        await client.admin.ensure_topic("t", queue_count=2)
        for number in range(CONSUMERS):
            background.spawn("pop", consumers.pop(number, client, leaves=False))
            if apart_s:
                await stage.clock.sleep(apart_s)
        yield consumers, client


def test_few_pops_of_a_crowd_wait_at_the_enode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs the snode more when it ends, and one is enough for the fastest delivery of a message."""
    for name, value in (("DIRECT_POPS_MAX", 4), ("CROWD_POPS", 2), ("DIRECT_POPS_OF_CROWD", 1)):
        monkeypatch.setattr(f"ortoo.snode.pop.processor.{name}", value)
    waits: list[PopCall] = []
    pop = SourcePops.pop

    async def noted(self: SourcePops, source: PopSource, call: PopCall) -> PopResult:
        if call.wait_ms and source.topic.name == "t":
            waits.append(call)
        return await pop(self, source, call)

    monkeypatch.setattr(SourcePops, "pop", noted)

    async def script(stage: ScriptedCluster) -> None:
        async with polling(stage, apart_s=WAIT_MS / 1000 / CONSUMERS):
            await stage.clock.sleep(LONG_WAIT_S)
            waits.clear()
            await stage.clock.sleep(10 * WAIT_MS / 1000)
            assert 9 <= len(waits) <= 11, len(waits)

    play(script, shape=ClusterShape(enodes=1))


def test_idle_pops_ask_no_enode(asked: list[str]) -> None:
    """After the time in which their consumers may have come from another snode."""

    async def script(stage: ScriptedCluster) -> None:
        async with polling(stage) as (consumers, client):
            await stage.clock.sleep(90)
            asked.clear()
            await stage.clock.sleep(300)
            assert asked == []
            async with client.producer("t") as producer:
                await producer.send(b"x")
            await stage.clock.sleep(PROMPTLY_S)
            assert list(consumers.received) == [b"x"]

    play(script, shape=ClusterShape(enodes=ENODES, snodes=1))


@pytest.mark.parametrize("away_s", [12.0, 60.0])
def test_messages_of_an_enode_that_was_away_do_not_wait_for_the_next_pop(away_s: float) -> None:
    """Also if the pop began while the enode had no lease in the directory."""

    async def script(stage: ScriptedCluster) -> None:
        received: dict[bytes, float] = {}
        async with stage.connect("app") as client, Background("load") as background:
            await client.admin.ensure_topic("t", queue_count=2)
            async with client.producer("t") as producer:
                groups = [str(number) for number in range(50)]
                receipts = {one: await producer.send(Message(b"early", message_group=one)) for one in groups}
                home = stage.cluster.enodes[0]
                group = next(one for one, receipt in receipts.items() if receipt.queue.enode == home.name)
                background.spawn("pop", pop_all(stage, client, received))
                await stage.clock.sleep(LONG_WAIT_S - away_s / 2)
                home.kill()
                await stage.clock.sleep(away_s)
                home.start()
                await home.ready.wait()
                await producer.send(Message(b"late", message_group=group))
                await stage.clock.sleep(RETURN_S)
                assert b"late" in received

    play(script, shape=ClusterShape(enodes=ENODES, snodes=1))


async def pop_all(stage: ScriptedCluster, client: Client, received: dict[bytes, float]) -> None:
    """Pop and acknowledge without end, with long waits."""
    settings = PopSettings(invisible_ms=30_000, wait_ms=int(LONG_WAIT_S * 1000), messages_max=8)
    async with client.pop_consumer("g", "t", settings=settings) as consumer:
        while True:
            for message in await consumer.pop():
                received[message.body] = stage.clock.monotonic_s()
                await message.ack()

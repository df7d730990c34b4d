"""An enode is drained while messages flow: nothing is lost, nothing waits, and it is taken back into use."""

import asyncio

import pytest

from ortoo.cli.cluster.draining import drain, fill
from ortoo.client import Conflict, Message, PopSettings, ProducerSettings
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play

MESSAGES = 1_200
RATE = 400
"""Messages a second; `make drain` does it with 2,000 and real processes."""
ROUTE_INTERVAL_MS = 500
"""Short, so that producers learn of the drain while they send."""


def test_an_enode_is_drained_while_messages_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and every send and delivery takes less than a second, also with message groups.

    In the end the enode is empty, no producer sends there, and it can be taken back into use.
    """

    async def script(stage: ScriptedCluster) -> None:
        monkeypatch.setattr("ortoo.common.process.clock.SystemClock", lambda: stage.clock)
        begun_s: dict[bytes, float] = {}
        came_s: dict[bytes, float] = {}
        stored_s: dict[bytes, float] = {}
        async with stage.connect("app") as client, stage.connect("operator") as operator:
            await client.admin.ensure_topic("t", queue_count=2)

            async def consume() -> None:
                async with client.pop_consumer("g", "t", "*", PopSettings()) as consumer:
                    while len(came_s) < MESSAGES:
                        popped = await consumer.pop(wait_ms=500)
                        for one in popped:
                            came_s.setdefault(one.body, stage.clock.monotonic_s())
                        await asyncio.gather(*(one.ack() for one in popped))

            async def send(number: int) -> None:
                body = b"%d" % number
                begun_s[body] = stage.clock.monotonic_s()
                await producer.send(Message(body, message_group=f"{number % 7}" if number % 2 else None))
                stored_s[body] = stage.clock.monotonic_s()

            settings = ProducerSettings(route_interval_ms=ROUTE_INTERVAL_MS)
            async with client.producer("t", settings) as producer, asyncio.TaskGroup() as work:
                work.create_task(consume())  # a task of the test, in a group
                for number in range(MESSAGES):
                    work.create_task(send(number))
                    await stage.clock.sleep(1 / RATE)
                    if number == MESSAGES // 4:
                        answer = await drain(operator, "enode-0")
                        assert answer.value["changed"] == ["t"]
            assert len(stored_s) == MESSAGES
            assert came_s.keys() == stored_s.keys()
            for ended_s in (stored_s, came_s):
                assert max(ended_s[body] - begun_s[body] for body in begun_s) < 1.0
            answer = await drain(operator, "enode-0", wait=True)
            assert answer.value == {"enode": "enode-0", "changed": [], "left": []}
            before = await end_of(stage, "enode-0")
            async with client.producer("t") as producer:
                for _ in range(20):
                    await producer.send(b"elsewhere")
            assert await end_of(stage, "enode-0") == before
            await fill(operator, "enode-0")
            assert (await operator.admin.describe_topic("t")).topic.publish_order == ()
            async with client.producer("t") as producer:
                for _ in range(20):
                    await producer.send(b"here again")
            assert await end_of(stage, "enode-0") > before

    async def end_of(stage: ScriptedCluster, name: str) -> int:
        async with stage.connect("reader") as client:
            queues = (await client.admin.describe_topic("t")).queues
            return sum(one.end_offset for one in queues if one.queue.enode == name)

    play(script, shape=ClusterShape(enodes=2, snodes=1))


def test_a_topic_that_lies_on_one_enode_alone_stops_a_drain() -> None:
    """Nothing is changed before every topic has another enode."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as client:
            await client.admin.ensure_topic("both")
            await client.admin.create_topic("alone", enodes=["enode-0"])
            with pytest.raises(Conflict, match="ortoo topic update alone --enode OTHER"):
                await drain(client, "enode-0")
            assert (await client.admin.describe_topic("both")).topic.publish_order == ()

    play(script, shape=ClusterShape(enodes=2, snodes=1))


def test_a_filled_enode_is_the_last_of_a_publish_order() -> None:
    """An order that leaves queues out stays a manual one. An order with all queues is the default order again."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as client:
            await client.admin.create_topic("whole", queue_count=2)
            await client.admin.create_topic("manual", queue_count=2)
            await client.admin.update_topic("manual", publish_order=[("enode-0", 2), ("enode-1", 1)])
            await drain(client, "enode-0")

            async def orders() -> list[tuple[tuple[str, int], ...]]:
                return [(await client.admin.describe_topic(name)).topic.publish_order for name in ("whole", "manual")]

            assert await orders() == [(("enode-1", 2),), (("enode-1", 1),)]
            await fill(client, "enode-0")
            assert await orders() == [(), (("enode-1", 1), ("enode-0", 2))]

    play(script, shape=ClusterShape(enodes=2, snodes=1))


def test_a_drain_sees_what_is_delayed_behind_much_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """More delayed messages on other enodes than a list may have do not hide the remaining ones here."""
    monkeypatch.setattr("ortoo.client.admin.enodes.draining.LISTED_MAX", 3)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as client:
            await client.admin.create_topic("t", queue_count=1, enodes=["enode-1"])
            now_ms = stage.clock.now_ms()
            async with client.producer("t") as producer:
                for number in range(7):
                    await producer.send(Message(b"there", deliver_at_ms=now_ms + 100_000 + number // 2))
            await client.admin.update_topic("t", add_enodes=["enode-0"], publish_order=[("enode-0", 1)])
            async with client.producer("t") as producer:
                await producer.send(Message(b"here", deliver_at_ms=now_ms + 200_000))
            await client.admin.update_topic("t", publish_order=[])
            answer = await drain(client, "enode-0")
            assert answer.value["left"] == [("t", "(delayed)", 1)]

    play(script, shape=ClusterShape(enodes=2, snodes=1))

"""Defects that seeds found, each with the schedule that triggers it, as regression tests."""

import asyncio
from functools import partial

import pytest

from apache.rocketmq.v2 import definition_pb2 as words
from apache.rocketmq.v2 import service_pb2 as calls
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, Message, NotFound, PopSettings
from ortoo.common.grpc.channels import Channels
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import EnodeMachine
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.simulation import run
from tests.simulation.scripted_cluster import ScriptedCluster, play


def test_clients_are_listed_when_redis_stops_answering_meanwhile() -> None:
    """The known clients are listed: the snode has not noticed yet that the membership store is silent."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.pop_consumer("g", "t", "*", PopSettings()) as consumer:
                await consumer.pop(wait_ms=100)
                stage.world.redis.stop_answering()
                assert "app" in [one.client_id for one in await client.admin.groups.list_clients()]
                stage.world.redis.resume_answering()

    play(script, shape=ClusterShape(enodes=1, snodes=2))


def test_a_message_whose_parking_is_asked_for_twice_has_one_dead_letter() -> None:
    """A full disk delays the dead letter, the caller disconnects meanwhile, and asks again at another time (G9)."""

    async def script(stage: ScriptedCluster) -> None:
        disk = stage.cluster.enodes[0].disk
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            settings = PopSettings(invisible_ms=60_000, attempts_max=1, messages_max=1)
            async with client.producer("t") as producer, client.pop_consumer("g", "t", "*", settings) as consumer:
                await producer.send(b"first")  # its parking creates the dead-letter topic
                [first] = await consumer.pop()
                await first.nack(0, error="it fails")
                while not await letters(client):
                    assert await consumer.pop(wait_ms=1_000) == []
                await producer.send(b"second")
                [second] = await consumer.pop()
                disk.current.full_after(0)
                stage.later(4.5, disk.current.heal)
                await second.nack(0, error="it fails too")  # the snode gives up after 3 s, the client does not
                await stage.clock.sleep(10)
                assert await consumer.pop(wait_ms=5_000) == []
            assert await letters(client) == [b"first", b"second"]

    async def letters(client: Client) -> list[bytes]:
        try:
            return [letter.message.body async for letter in client.admin.list_dead_letters("g")]
        except NotFound:
            return []

    play(script)


def test_a_search_whose_read_fails_is_told_to_come_again() -> None:
    """EIO in the key index is Unavailable, so that the client retries, and no defect in the enode's log."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send(Message(b"body", keys=["17"]))
            stage.cluster.enodes[0].disk.current.platter.failing_reads = 1
            found = await client.admin.find_messages("t", key="17")
            assert [one.message.body for one in found.messages] == [b"body"]

    play(script)


def test_a_topic_that_was_stored_without_an_answer_is_there() -> None:
    """The database of a single name server fails after its commit: after a retry the topic can be used."""

    async def script(stage: ScriptedCluster) -> None:
        database = stage.world.database
        async with stage.connect("app") as client:
            database.lost_after = 1.0
            stage.later(2, lambda: setattr(database, "lost_after", 0.0))
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send(b"body")

    play(script)


def test_an_enode_ends_in_good_order_though_its_disk_takes_no_names() -> None:
    """EIO while spare files are removed costs at most the clean stop; stored messages are there again."""

    async def script(stage: ScriptedCluster) -> None:
        enode = stage.cluster.enodes[0]
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                receipt = await producer.send(b"body")
                await stage.clock.sleep(3)  # a spare file is created meanwhile
                enode.disk.current.platter.failing_names = 50
                await enode.stop()
                enode.start()
                await enode.ready.wait()
                await producer.send(b"another")
            batches = [batch async for batch in client.fetch(receipt.queue)]
            assert [body for batch in batches for body in batch.bodies()] == [b"body", b"another"]

    play(script)


def test_a_consumer_whose_block_is_called_off_gives_back_what_it_has() -> None:
    """Its messages come again at once, not when their lease of an hour expires."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            settings = PopSettings(invisible_ms=3_600_000, renew_max_ms=0)

            async def pop_and_wait(has_it: asyncio.Event) -> None:
                async with client.pop_consumer("g", "t", "*", settings) as consumer:
                    assert len(await consumer.pop()) == 1
                    has_it.set()
                    await asyncio.Event().wait()

            async with client.producer("t") as producer:
                await producer.send(b"one")
            has_it = asyncio.Event()
            popping = asyncio.ensure_future(pop_and_wait(has_it))  # noqa: TID251  # called off below
            await has_it.wait()
            popping.cancel()
            await asyncio.wait({popping})
            async with client.pop_consumer("g", "t", "*", settings) as consumer:
                [again] = await consumer.pop(wait_ms=10_000)
                assert (again.body, again.attempt) == (b"one", 1)
                await again.ack()

    play(script)


@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (13, 14))])
def test_pops_that_are_called_off_at_any_await_lose_nothing(seed: int) -> None:
    """A pop with messages of one queue, or one enode, that was cancelled at the next one.

    Seed 8: its cancellation overtakes it.
    """
    outcome = run(RunOptions(seed, seconds=10.0, faults=False, scenarios=("cancelling",)))
    assert outcome.violations == ()


@pytest.mark.parametrize("seed", [1, 3, 5, 7])
def test_a_message_that_a_dying_enode_may_have_stored_goes_to_no_other_one(seed: int) -> None:
    """G4: it is away for longer than a send waits, and reports at last that it never received the message."""

    async def script(stage: ScriptedCluster) -> None:
        killed: list[str] = []

        def kill(enode: EnodeMachine) -> None:
            if not killed:
                killed.append(enode.name)
                enode.kill()
                stage.later(5.0, enode.start)

        async with stage.connect("app") as client, Channels() as channels:
            while sum(one.alive for one in (await client.admin.describe_cluster()).enodes) < 2:
                await stage.clock.sleep(0.1)
            await client.admin.ensure_topic("t", queue_count=2)
            await stage.clock.sleep(10)  # nothing else is written
            for enode in stage.cluster.enodes:
                enode.disk.call_at_next("write", stage.world.loop, 60.0, partial(kill, enode))
            told = words.SystemProperties(message_id="one", message_type=words.NORMAL)
            message = words.Message(topic=words.Resource(name="t"), system_properties=told, body=b"body")
            stub = MessagingServiceStub(channels.channel_to(stage.cluster.addresses[0]))
            request = calls.SendMessageRequest(messages=[message])
            answer = await stub.SendMessage(request, metadata=(("x-mq-client-id", "app"),), timeout=20)
            await stage.clock.sleep(10)
            assert killed
            queues = [one.queue for one in (await client.admin.describe_topic("t")).queues]
            stored = [body for queue in queues async for batch in client.fetch(queue) for body in batch.bodies()]
            assert len({queue.enode for queue in queues}) == 2
            assert len(stored) <= 1
            assert stored or answer.status.code != words.OK

    play(script, seed=seed, shape=ClusterShape(enodes=2, snodes=1))

"""A purge of a replicated topic: no later leader shows the purged messages again."""

import pytest

from ortoo.client import OutOfRange, PopSettings, Unavailable
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, harmed, leader, sent, topic


@pytest.mark.parametrize("harm", ["kill", "power cut", "isolate"])
def test_purged_messages_are_unreadable_at_the_next_leader(harm: str) -> None:
    """The purge is a change in the log, so a majority has it before the call returns."""

    async def script(stage: ScriptedCluster) -> None:
        stored: list[bytes] = []
        async with stage.connect("operator") as client:
            await topic(stage, client)
            queue = await sent(client, 5, stored)
            member = await leader(stage)
            [trimmed] = await client.admin.purge_topic("t")
            assert (trimmed.previous_begin_offset, trimmed.begin_offset) == (0, 5)
            undo = await harmed(stage, member, harm)
            await sent(client, 3, stored)
            assert member is not await leader(stage)
            with pytest.raises(OutOfRange):
                async for _ in client.fetch(queue, 4):
                    pass
            found = [body async for batch in client.fetch(queue, 5) for body in batch.bodies()]
            assert found == stored[5:]
            undo()

    play(script, shape=THREE)


def test_an_enode_that_cannot_trim_is_named_with_those_that_have() -> None:
    """Its disk fails at the trim. After its restart the same call trims its queues."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                for _ in range(20):
                    await producer.send(b"m")
            failing = stage.cluster.enodes[1]
            failing.disk.current.fail_sync()
            with pytest.raises(Unavailable, match="the queues on enode-0 were trimmed, those on enode-1 were not"):
                await client.admin.purge_topic("t")
            await failing.stop()
            failing.start()
            await failing.ready.wait()
            await client.admin.purge_topic("t")
            queues = (await client.admin.describe_topic("t")).queues
            assert {one.queue.enode for one in queues} == {"enode-0", "enode-1"}
            assert all(one.begin_offset == one.end_offset > 0 for one in queues)

    play(script, shape=ClusterShape(enodes=2))


def test_dedup_ids_of_purged_messages_stay() -> None:
    """A message with the id of a purged one is not stored again."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send_once(b"x", "order-1")
                await client.admin.purge_topic("t")
                await producer.send_once(b"x", "order-1")
                await producer.send_once(b"y", "order-2")
            found = [one.message.body async for one in client.admin.tail("t", from_beginning=True, follow=False)]
            assert found == [b"y"]

    play(script)


def test_dead_letters_are_purged_by_the_name_of_their_topic_alone() -> None:
    """A purge of the topic of the messages leaves them."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send(b"x")

            async def dead() -> int:
                return len([one async for one in client.admin.list_dead_letters("g")])

            async with client.pop_consumer("g", "t", "*", PopSettings(attempts_max=1)) as consumer:
                for one in await consumer.pop(wait_ms=5_000):
                    await one.nack(0, error="broken")
                while not await dead():
                    await consumer.pop(wait_ms=500)
            await client.admin.purge_topic("t")
            assert await dead() == 1
            await client.admin.purge_topic("%DLQ%g")
            assert await dead() == 0

    play(script)

"""Processes without a free descriptor for a while: calls that need one are refused, and later all work resumes."""

import errno

import pytest

from ortoo.client import OrtooError, ProducerSettings
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, bodies, leader, sent, topic

BODY = b"m" * 8_000
FILLING, ROOM_BYTES = b"m" * 1_000, 4_000
STARVED_S = 8.0
SETTINGS = ProducerSettings(linger_ms=0, batch_bytes_max=10_000, delivery_timeout_ms=60_000)
MESSAGES = 40
"""They fill several segments."""


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_an_enode_resumes_when_it_has_descriptors_again(error: int) -> None:
    """Sends wait, as for a full disk. Then the same process stores them, and serves earlier messages."""

    async def script(stage: ScriptedCluster) -> None:
        (machine,) = stage.cluster.enodes
        async with stage.connect("app") as client:
            await client.admin.create_topic("t", queue_count=1)
            async with client.producer("t", SETTINGS) as producer:
                receipts = [await producer.send(BODY) for _ in range(MESSAGES)]
                machine.disk.current.open_error = error
                stage.later(STARVED_S, machine.disk.current.heal)
                begun_s = stage.clock.monotonic_s()
                receipts += [await producer.send(BODY) for _ in range(MESSAGES)]
                assert stage.clock.monotonic_s() - begun_s >= STARVED_S
            running = machine.running
            assert isinstance(running, RunningEnode)
            assert not running.store.engine.appender.failure
            assert running.store.describe().writable
            assert await bodies(client, receipts[0].queue) == [BODY] * 2 * MESSAGES
        assert machine.incarnations == 1

    play(script, shape=ClusterShape(enodes=1, snodes=1))


def test_old_messages_are_refused_and_new_ones_are_stored() -> None:
    """While no file can be opened, an open segment is written. Reads of others fail with the reason, and work later."""

    async def script(stage: ScriptedCluster) -> None:
        (machine,) = stage.cluster.enodes
        async with stage.connect("app") as client:
            await client.admin.create_topic("t", queue_count=1)
            async with client.producer("t", SETTINGS) as producer:
                stored = [BODY] * MESSAGES
                for body in stored:
                    await producer.send(body)
                running = machine.running
                assert isinstance(running, RunningEnode)
                engine = running.store.engine
                while not engine.appender.fits(ROOM_BYTES):  # "small" must fit into the open segment
                    stored.append(FILLING)
                    await producer.send(FILLING)
                engine.reader.recent.drop_below(engine.appender.durable_position)
                machine.disk.current.open_error = errno.EMFILE
                small = await producer.send(b"small")
                with pytest.raises(OrtooError, match="cannot be opened"):
                    await running.store.fetch(engine.state.topics.all()[0].topic_id, 0, 0)
                machine.disk.current.heal()
            assert await bodies(client, small.queue) == [*stored, b"small"]

    play(script, shape=ClusterShape(enodes=1, snodes=1))


def test_a_replica_votes_when_it_can_write_its_vote() -> None:
    """A follower without free descriptors cannot store a vote, so it does not vote; its process stays up.

    After a kill of the leader there is no majority without it. When descriptors are free, one of the two leads.
    """

    async def script(stage: ScriptedCluster) -> None:
        stored: list[bytes] = []
        async with stage.connect("app") as client:
            await topic(stage, client)
            queue = await sent(client, 20, stored)
            first = await leader(stage)
            others = [one for one in stage.cluster.replicas if one is not first]
            lives = [one.incarnations for one in others]
            for one in others:
                one.disk.current.open_error = errno.EMFILE
            first.kill()
            await stage.clock.sleep(STARVED_S)
            assert not any(one.is_leading for one in others)
            assert all(one.alive for one in others)
            for one in others:
                one.disk.current.heal()
            await sent(client, 20, stored)
            assert await leader(stage) in others
            assert [one.incarnations for one in others] == lives
            first.start()
            assert await bodies(client, queue) == stored

    play(script, shape=THREE)


@pytest.mark.parametrize("whose", ["the leader", "a follower", "all"])
def test_a_set_serves_during_and_after_replicas_without_descriptors(whose: str) -> None:
    """One of three loses no acknowledged message. Sends wait while all three have none, and no process ends."""

    async def script(stage: ScriptedCluster) -> None:
        stored: list[bytes] = []
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 20, stored)
            first = await leader(stage)
            chosen: list[ReplicaMachine] = stage.cluster.replicas
            if whose != "all":
                chosen = [one for one in chosen if (one is first) is (whose == "the leader")][:1]
            for one in chosen:
                one.disk.current.open_error = errno.EMFILE
                stage.later(STARVED_S, one.disk.current.heal)
            async with client.producer("t", SETTINGS) as producer:
                receipts = [await producer.send(BODY) for _ in range(MESSAGES)]
                stored += [BODY] * MESSAGES
            await stage.clock.sleep(STARVED_S)
            assert await bodies(client, receipts[0].queue) == stored
            assert [one.incarnations for one in stage.cluster.replicas] == [1, 1, 1]

    play(script, shape=THREE)

"""Disks of replicas that hang, are slow, or are full: a majority works without them, under another leader if needed."""

import asyncio
import statistics

from ortoo.client import Producer, ProducerSettings
from ortoo.common.process.background import Background
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import bodies, leader, sent, topic

THREE = ClusterShape(enodes=1, snodes=1, replicas=3)
HUNG_NAMED_S = 2.0
HUNG_S = 3.0
"""Maximum time from the last answer of a leader's disk until another replica leads."""
SLOW_SYNC_S = 0.4
FULL_S = 5.0
BODY = b"m" * 2_000
"""A segment of a simulated enode is full after some thirty of these."""


def set_write_s(member: ReplicaMachine, seconds: float) -> None:
    """Let each piece of work on a disk take this long."""
    latency = member.disk.latency
    latency.least_s = latency.usual_s = seconds
    latency.seldom = 0.0


def fill(member: ReplicaMachine) -> int:
    """Leave no space on a disk; returns the space before."""
    platter = member.disk.current.platter
    room, platter.capacity_bytes = platter.capacity_bytes, platter.image.used_bytes()
    return room


def set_room(member: ReplicaMachine, room: int) -> None:
    """Give a disk this space."""
    member.disk.current.platter.capacity_bytes = room


def epoch_of(member: ReplicaMachine) -> int:
    """The epoch of the vote that is on a replica's disk."""
    assert isinstance(member.running, RunningEnode)
    return member.running.process.membership.stored.hard_state.epoch


def test_a_leader_whose_disk_hangs_is_replaced() -> None:
    """Under load another replica leads within 3 s, all sends succeed, and the hung disk loses nothing."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 5, stored)
            first = await leader(stage)
            others = [one for one in stage.cluster.replicas if one is not first]

            async def load(producer: Producer) -> None:
                while not any(one.is_leading for one in others):
                    body = b"%d" % len(stored)
                    await producer.send(body)
                    stored.append(body)

            async with client.producer("t") as producer, Background("load") as background:
                loading = background.spawn("send", load(producer))
                await stage.clock.sleep(0.5)
                first.disk.latency.is_hanging = True
                begun_s = stage.clock.monotonic_s()
                await asyncio.wait([loading])
                assert stage.clock.monotonic_s() - begun_s < HUNG_S
            await sent(client, 10, stored)
            first.disk.latency.is_hanging = False
            await stage.clock.sleep(3)
            found = await bodies(client, queue)
            assert [one for one in stored if one not in found] == []

    play(script, shape=THREE)


def test_a_leader_whose_disk_is_full_is_replaced() -> None:
    """Another replica leads within 3 s after the leader has refused a message. Each message is stored within 5 s.

    The full replica continues to vote, because room for its vote is reserved. So the third replica becomes leader
    although the second one is killed.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 5, stored)
            first = await leader(stage)
            others = [one for one in stage.cluster.replicas if one is not first]
            room = fill(first)
            longest_s = 0.0
            async with client.producer("t") as producer:
                for number in range(200):
                    body = b"%d " % number + BODY
                    begun_s = stage.clock.monotonic_s()
                    await producer.send(body)
                    longest_s = max(longest_s, stage.clock.monotonic_s() - begun_s)
                    stored.append(body)
            assert longest_s < FULL_S
            second = await leader(stage)
            assert second in others
            [third] = [one for one in others if one is not second]
            before = epoch_of(first)
            second.kill()
            while epoch_of(first) == before or epoch_of(first) != epoch_of(third):
                await stage.clock.sleep(0.1)
            second.start()
            await sent(client, 5, stored)
            set_room(first, room)
            await stage.clock.sleep(5)
            await sent(client, 5, stored)
            found = await bodies(client, queue)
            assert [one for one in stored if one not in found] == []

    play(script, shape=THREE)


def test_a_slow_disk_of_the_leader_delays_no_send() -> None:
    """The leader's disk is one of the majority: with 400 ms a sync on it alone, the two others acknowledge sends.

    Messages that are not on the leader's disk yet are readable, and it continues to lead.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 5, stored)
            first = await leader(stage)
            set_write_s(first, SLOW_SYNC_S)
            took_s: list[float] = []
            async with client.producer("t", ProducerSettings(linger_ms=1)) as producer:
                for number in range(200):
                    body = b"slow %d" % number
                    begun_s = stage.clock.monotonic_s()
                    await producer.send(body)
                    took_s.append(stage.clock.monotonic_s() - begun_s)
                    stored.append(body)
                found = await bodies(client, queue)
            assert statistics.median(took_s) < 0.1
            assert [one for one in stored if one not in found] == []
            assert first.is_leading
            set_write_s(first, 0.001)

    play(script, shape=THREE)


def test_a_hanging_disk_of_an_enode_alone_is_named_by_health_and_doctor() -> None:
    """Within 2 s from the write that hangs, the enode reports the disk, is not ready, and is left out of routes."""

    async def script(stage: ScriptedCluster) -> None:
        enode = stage.cluster.enodes[0]
        async with stage.connect("app") as client, Background("load") as background:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send(b"first")
                running = enode.running
                assert isinstance(running, RunningEnode)
                assert running.process.server.serving
                await stage.clock.sleep(1)
                enode.disk.latency.is_hanging = True
                sending = background.spawn("send", producer.send(b"second"))
                await stage.clock.sleep(HUNG_NAMED_S)
                assert [one.name for one in running.process.findings() if one] == ["disk hangs"]
                assert not running.process.server.serving
                [listed] = (await client.admin.describe_cluster()).enodes
                assert "the disk does not answer" in listed.write_refusal
                enode.disk.latency.is_hanging = False
                await asyncio.wait([sending])
                await stage.clock.sleep(1)
                assert running.process.server.serving
                assert "disk hangs" not in [one.name for one in running.process.findings() if one]

    play(script)

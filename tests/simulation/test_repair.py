"""Damage in closed segments of replicas: a damaged range is repaired from another replica's copy."""

import contextlib
from pathlib import Path

import grpc
import pytest

from ortoo.client import Client, DataLoss, OrtooError, Queue
from ortoo.common.grpc.channels import Channels
from ortoo.enode.app import RunningEnode
from ortoo.enode.log.segment import INDEX_SUFFIX
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.v1 import enode_replicas_pb2 as pb
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceStub
from ortoo.v1.replica_report_pb2 import ReplicaId
from ortoo.verification.simulation.duties.durable_log import DurableLog
from ortoo.verification.simulation.run.agreement import SEGMENT_SUFFIX, differences
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, bodies, leader, topic

MESSAGES = [b"%02d" % number * 10_000 for number in range(12)]
"""Some of these fill a segment."""
FRAME_HEAD_BYTES = 100
"""The approximate position of a message in its frame."""


def damage(machine: ReplicaMachine, message: bytes, *, before: int = 0) -> None:
    """Flip a bit of a stored message, or `before` bytes before it."""
    for path in machine.disk.files():
        place = machine.disk.content(path).find(message) if path.suffix == SEGMENT_SUFFIX else -1
        if place >= 0:
            machine.disk.flip(path, place - before if before else place + len(message) // 2)
            return
    raise AssertionError(f"{machine.name} has no such message")


def closed_segments(machine: ReplicaMachine) -> list[bytes]:
    """The content of all segments of a replica but the newest, without the preallocated end."""
    paths = [path for path in machine.disk.files() if path.suffix == SEGMENT_SUFFIX]
    return [machine.disk.content(path).rstrip(b"\0") for path in paths[:-1]]


def repaired(machine: ReplicaMachine) -> int:
    """The number of frames that a replica has repaired."""
    assert isinstance(machine.running, RunningEnode)
    return machine.running.process.repaired_frames


async def filled(client: Client) -> Queue:
    """Send all messages; their queue."""
    async with client.producer("t") as producer:
        receipts = [await producer.send(one) for one in MESSAGES]
    return receipts[0].queue


async def stored(stage: ScriptedCluster, client: Client) -> tuple[Queue, ReplicaMachine, list[ReplicaMachine]]:
    """Messages in closed segments that are cached nowhere; the leader, and the others."""
    await topic(stage, client)
    queue = await filled(client)
    for machine in stage.cluster.replicas:
        await machine.stop()
    for machine in stage.cluster.replicas:
        machine.start()
    first = await leader(stage)
    return queue, first, [one for one in stage.cluster.replicas if one is not first]


def test_a_flipped_bit_of_the_leader_is_read_from_another_copy_and_repaired() -> None:
    """Readers get every message; the segment is whole again, and a counter has the number of repairs."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, first, (second, third) = await stored(stage, client)
            as_stored = closed_segments(first)
            damage(first, MESSAGES[2])
            damage(first, MESSAGES[4], before=FRAME_HEAD_BYTES)
            damage(first, MESSAGES[5])
            damage(second, MESSAGES[5])  # of two copies that are damaged there, the third one's is used
            assert await bodies(client, queue) == MESSAGES
            assert repaired(first) == 3
            assert await bodies(client, queue) == MESSAGES
            assert repaired(first) == 3
            assert closed_segments(first) == closed_segments(third) == as_stored != closed_segments(second)
            assert isinstance(first.running, RunningEnode)
            log_end = first.running.services.store.engine.appender.durable_position
            assert DurableLog(first.disk, Path("/") / first.name).lacks(log_end, log_end) == ""  # repairs are synced
            first.kill()
            while await leader(stage) is first:
                await stage.clock.sleep(0.1)
            first.start()
            await until_read(stage, client, queue)

    play(script, shape=THREE)


def test_a_member_that_was_away_gets_what_the_leader_has_damaged() -> None:
    """The leader repairs the range before sending it: all replicas have the same log in the end."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            second, late = [one for one in stage.cluster.replicas if one is not first]
            late.kill()
            await filled(client)
            for machine in (second, first):
                await machine.stop()
            for machine in (first, second):
                machine.start()
            first = await leader(stage)
            damage(first, MESSAGES[2], before=FRAME_HEAD_BYTES)
            damage(first, MESSAGES[3])
            late.start()
            while differences(stage.cluster.replicas):
                await stage.clock.sleep(0.2)
            assert repaired(first) == 2

    play(script, shape=THREE)


async def until_read(stage: ScriptedCluster, client: Client, queue: Queue) -> None:
    """Read until all messages are there; none may be reported as lost until then."""
    while True:
        try:
            assert await bodies(client, queue) == MESSAGES
            return
        except DataLoss:
            raise
        except OrtooError:
            pass
        await stage.clock.sleep(0.2)


async def stopped(first: ReplicaMachine, others: list[ReplicaMachine]) -> None:
    """Stop all, `first` as the last one, so that its start believes its whole log.

    After an unclean stop it would end its log at the damage, and get the rest as a follower.
    """
    for machine in (*others, first):
        await machine.stop()


def test_damage_that_a_start_has_found_is_repaired_for_the_first_reader() -> None:
    """Without its index the missing part of a damaged segment is unknown: it is requested, and the index rebuilt."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, first, others = await stored(stage, client)
            await stopped(first, others)
            for number in (1, 4):
                damage(first, MESSAGES[number], before=FRAME_HEAD_BYTES)
            for path in first.disk.files():
                if path.suffix == INDEX_SUFFIX:
                    first.disk.remove(path)
            first.start()
            for machine in stage.cluster.replicas:
                machine.start()
            while (leads := await leader(stage)) is not first:
                await handed_over(stage, leads, first)
            await until_read(stage, client, queue)
            assert repaired(first) == 2

    play(script, shape=THREE)


async def damaged_side_by_side(
    stage: ScriptedCluster, client: Client
) -> tuple[Queue, ReplicaMachine, list[ReplicaMachine]]:
    """As `stored`, with two adjacent damaged frames at the leader, without an index."""
    queue, first, others = await stored(stage, client)
    await stopped(first, others)
    for number in (4, 5):
        damage(first, MESSAGES[number], before=FRAME_HEAD_BYTES)
    for path in first.disk.files():
        if path.suffix == INDEX_SUFFIX:
            first.disk.remove(path)
    for machine in stage.cluster.replicas:
        machine.start()
    while (leads := await leader(stage)) is not first:
        await handed_over(stage, leads, first)
    return queue, first, others


def test_what_one_copy_gives_in_part_is_no_loss_while_another_is_away() -> None:
    """The first of two damaged frames is repaired, and the second stays pending until its only copy is back."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, first, (second, third) = await damaged_side_by_side(stage, client)
            damage(second, MESSAGES[5])
            third.kill()
            stage.later(8.0, third.start)
            await until_read(stage, client, queue)
            assert repaired(first) == 2

    play(script, shape=THREE)


def test_a_frame_beside_one_that_nobody_has_is_read() -> None:
    """Of two damaged frames in one place, the one with another copy is served, and only the other is lost."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, first, others = await damaged_side_by_side(stage, client)
            for one in others:
                damage(one, MESSAGES[5])
            with pytest.raises(DataLoss) as lost:
                await bodies(client, queue)
            assert "offsets 5 to 6" in str(lost.value)
            assert repaired(first) == 1

    play(script, shape=THREE)


async def handed_over(stage: ScriptedCluster, old: ReplicaMachine, new: ReplicaMachine) -> None:
    """Transfer leadership to another replica."""
    assert isinstance(new.running, RunningEnode)
    kept = new.running.process.membership.stored.replica
    async with Channels() as channels:
        operator = EnodeReplicasServiceStub(channels.channel_to(old.address))
        successor = ReplicaId(number=kept.number, disk=kept.disk)
        with contextlib.suppress(grpc.RpcError):  # it is not there yet, or lacks frames
            await operator.HandOver(pb.HandOverRequest(enode=old.enode, successor=successor))
    await stage.clock.sleep(1)


def test_damage_is_no_loss_before_every_copy_was_looked_at() -> None:
    """Nothing is reported as lost while a replica that may have it is away. If none has it, readers get DATA_LOSS."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, first, (second, third) = await stored(stage, client)
            for one in (first, second):
                damage(one, MESSAGES[3])
            third.kill()
            stage.later(8.0, third.start)
            begun_s = stage.clock.monotonic_s()
            await until_read(stage, client, queue)
            assert stage.clock.monotonic_s() - begun_s > 8.0
            assert repaired(first) == 1
            for one in stage.cluster.replicas:
                damage(one, MESSAGES[7])
            with pytest.raises(DataLoss):
                await bodies(client, queue)

    play(script, shape=THREE)

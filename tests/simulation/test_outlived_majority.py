"""Holders of state from before a majority lost its disks: that state is invalid afterwards."""

from pathlib import Path

import pytest

from ortoo.common.errors import Fenced, NotFound
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.app import RunningEnode
from ortoo.enode.changes.halves import HalfVerdict, VerdictOrigin
from ortoo.enode.leadership.services import EnodeServices
from ortoo.enode.offline.elect import become_single_replica
from ortoo.enode.store.lock_table import LockGranted, LockRequest
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, sent, topic

PRODUCER = 7
DATA = b"x" * 50
LOCKS = 4_000
"""Releasing them all takes more than a segment."""


async def leading(stage: ScriptedCluster, before: EnodeServices | None = None) -> tuple[ReplicaMachine, EnodeServices]:
    """The leader, and its serving parts if they are newer than `before`."""
    while True:
        machine = await leader(stage)
        parts = machine.running.process.services if isinstance(machine.running, RunningEnode) else None
        if parts not in (None, before):
            return machine, parts
        await stage.clock.sleep(0.1)


async def begun(parts: EnodeServices, topic_id: int) -> int:
    """The number of a new transaction."""
    batch = encode([Message(b"half")], now_ms=1)
    return (await parts.transactions.begin(topic_id, 0, batch, producer_group="p")).number


def numbered(first_sequence: int) -> SealedBatch:
    """A producer's batch."""
    return SealedBatch(DATA, crc32c(DATA), 2, len(DATA), PRODUCER, first_sequence)


async def locked(parts: EnodeServices, topic_id: int, queue_id: int) -> int:
    """The generation of a new lock."""
    [granted] = await parts.store.locks.take([LockRequest((topic_id, "g", queue_id), "client", f"session {queue_id}")])
    assert isinstance(granted, LockGranted)
    return granted.generation


def test_what_others_still_hold_of_a_lost_majority_is_nothing_of_what_comes_after() -> None:
    """G7, G8: transactions, leases, locks and sequences from behind the last disk's log end are invalid.

    As for a store made from a backup. State from before that end continues.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 5, [])
            first, parts = await leading(stage)
            [topic_id] = [one.topic_id for one in parts.store.topics() if one.name == "t"]
            kept = await begun(parts, topic_id)
            await parts.store.append(topic_id, 0, numbered(0))
            await stage.clock.sleep(2)
            left, late = [one for one in stage.cluster.replicas if one is not first]
            left.kill()
            lost = [await begun(parts, topic_id) for _ in range(3)]
            for sequence in range(2, 40, 2):
                await parts.store.append(topic_id, 0, numbered(sequence))
            opening, generation = parts.store.describe().store_open_number, await locked(parts, topic_id, 0)
            for one in (first, late):
                one.kill()
                one.disk.replace_with_empty()
            disk, folder = left.disk.open(), Path("/") / left.name
            become_single_replica(disk, folder, stage.clock, stage.world.random_streams.stream("operator"))
            left.start()
            _, parts = await leading(stage, parts)
            for again in range(2):
                if again:
                    left.kill()
                    left.start()
                    _, parts = await leading(stage, parts)
                await begun(parts, topic_id)
            for number in lost:
                with pytest.raises(NotFound, match="no such transaction"):
                    await parts.transactions.end(topic_id, number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
            await parts.transactions.end(topic_id, kept, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
            assert len(parts.store.halves.select()) == 2
            with pytest.raises(NotFound, match="Take a new producer id"):
                await parts.store.append(topic_id, 0, numbered(40))
            assert parts.store.describe().store_open_number > opening + 1_000
            assert await locked(parts, topic_id, 0) > generation
            with pytest.raises(Fenced):
                parts.store.locks.table.check_generation((topic_id, "g", 0), generation, must_match=True)
            await sent(client, 5, [])  # name servers take it for the enode when the former leader's lease has ended

    play(script, shape=THREE)


def test_a_disk_that_goes_on_alone_and_is_full_waits_for_room() -> None:
    """Like any log without space: its process does not end, and it leads as soon as there is some."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first, parts = await leading(stage)
            [topic_id] = [one.topic_id for one in parts.store.topics() if one.name == "t"]
            keys = [(topic_id, "g", queue_id) for queue_id in range(LOCKS)]
            await parts.store.locks.take([LockRequest(key, "client", "session") for key in keys])
            others = [one for one in stage.cluster.replicas if one is not first]
            for one in stage.cluster.replicas:
                one.kill()
            for one in others:
                one.disk.replace_with_empty()
            become_single_replica(
                first.disk.open(), Path("/") / first.name, stage.clock, stage.world.random_streams.stream("operator")
            )
            first.start()
            await first.ready.wait()
            assert not first.is_leading
            platter, process = first.disk.current.platter, first.process
            room, platter.capacity_bytes = platter.capacity_bytes, platter.image.used_bytes() + 4096
            await stage.clock.sleep(20)
            assert first.process is process
            assert not first.is_leading
            platter.capacity_bytes = room
            _, parts = await leading(stage, parts)
            assert first.process is process
            for key in keys:
                with pytest.raises(Fenced):
                    parts.store.locks.table.check_generation(key, 1, must_match=True)

    play(script, shape=THREE)

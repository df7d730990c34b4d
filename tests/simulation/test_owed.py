"""An acknowledged range that a replica lost to its disk is due, also when the replica was never idle."""

import asyncio

from ortoo.client import Client
from ortoo.enode.app import RunningEnode
from ortoo.enode.log.frame import MAGIC_BYTES
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.verification.simulation.run.agreement import SEGMENT_SUFFIX
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, topic

MESSAGE = b"." * 500
SENDERS = 8
BUSY_S = 1.5
"""Longer than a busy disk takes to write its durable mark; too short for a checkpoint, from which a start begins."""


def flushed(machine: ReplicaMachine) -> int:
    """The durable position of a replica's disk, as reported to its leader."""
    assert isinstance(machine.running, RunningEnode)
    driver = machine.running.process.driver
    return driver.replica.log.flushed if driver is not None else 0


async def busy(stage: ScriptedCluster, client: Client, seconds: float) -> None:
    """Send messages for `seconds`, with enough senders that the disks are never idle."""
    until_s = stage.clock.monotonic_s() + seconds

    async def one_after_another() -> None:
        async with client.producer("t") as producer:
            while stage.clock.monotonic_s() < until_s:
                await producer.send(MESSAGE)

    await asyncio.gather(*(one_after_another() for _ in range(SENDERS)))


def test_a_busy_member_owes_what_damage_took() -> None:
    """A leader or follower is damaged and killed under load: every vote includes the range it had just before."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            harmed = (first, next(one for one in stage.cluster.replicas if one is not first))
            await busy(stage, client, BUSY_S)
            acknowledged = [flushed(one) for one in harmed]
            await busy(stage, client, BUSY_S)
            for machine, position in zip(harmed, acknowledged, strict=True):
                machine.kill()
                path = next(one for one in machine.disk.files() if one.suffix == SEGMENT_SUFFIX)
                content = machine.disk.content(path)
                machine.disk.flip(path, content.rindex(MAGIC_BYTES, 0, content.index(MESSAGE)))
                machine.start()
                await machine.ready.wait()
                assert isinstance(machine.running, RunningEnode)
                while (driver := machine.running.process.driver) is None:
                    await stage.clock.sleep(0.001)
                assert driver.log.summary.flushed < position  # as it was opened; by now it may have the range again
                assert machine.running.process.membership.stored.hard_state.unsynced_tail.position >= position
                while flushed(machine) < position:
                    await stage.clock.sleep(0.1)
            await leader(stage)

    play(script, shape=THREE)

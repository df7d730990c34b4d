"""Duties of a replica at rare moments, checked on the wire and on the disks by the model of the random runs."""

import contextlib

from ortoo.client import OrtooError
from ortoo.common.process.background import Background
from ortoo.enode.app import RunningEnode
from ortoo.verification.simulation.duties.replica_duties import ReplicaDuties
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, sent, topic


def watched(stage: ScriptedCluster) -> None:
    """Check the duties of the replicas in this script."""
    ReplicaDuties(stage.cluster, stage.world.violations)


def test_a_leader_that_stops_alone_writes_no_marker_beyond_its_committed_log() -> None:
    """A leader is cut off with a frame that only its own disk has, and is stopped gracefully.

    The marker of a clean stop says that everything is committed, so it is not written. Then the frame is truncated,
    with a record before it.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client, Background("send") as background:
            await topic(stage, client)
            stored: list[bytes] = []
            await sent(client, 3, stored)
            first = await leader(stage)
            assert isinstance(first.running, RunningEnode)
            driver = first.running.process.driver
            assert driver is not None
            for one in stage.cluster.replicas:
                if one is not first:
                    stage.world.network.partition(first.name, one.name, both_ways=True)

            async def send() -> None:
                with contextlib.suppress(OrtooError):
                    async with client.producer("t") as producer:
                        await producer.send(b"only here")

            background.spawn("send", send())
            while driver.replica.log.flushed <= driver.replica.log.committed:
                await stage.clock.sleep(0.01)
            await first.stop()
            stage.world.network.heal()
            await sent(client, 3, stored)
            first.start()
            await first.ready.wait()
            await sent(client, 3, stored)

    play(script, shape=THREE, prepare=watched)

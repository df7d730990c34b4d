"""Duties of a replica at rare moments, checked on the wire and on the disks by the model of the random runs."""

import asyncio
import contextlib

import pytest

from ortoo.client import OrtooError
from ortoo.common.process.background import Background
from ortoo.enode.app import RunningEnode
from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.verification.simulation.duties.replica_duties import ReplicaDuties
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import SLOW_TAKE_OVER_S, THREE, leader, sent, topic


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


@pytest.mark.parametrize("is_new_process", [False, True])
def test_who_is_stopped_while_it_opens_its_log_is_accepted_at_its_next_start(*, is_new_process: bool) -> None:
    """No name server was told the number of a start that is not on the disk: the next start would count it again.

    A replica whose starts are refused has no part in elections, so the loss of another one would leave no leader.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            await sent(client, 3, stored)
            first = await leader(stage)
            follower = next(one for one in stage.cluster.replicas if one is not first)
            latency = follower.disk.latency
            if is_new_process:
                follower.kill()
                follower.start()
                latency.is_hanging = True
                await follower.ready.wait()
            else:
                _process(follower).driver._end_log("for a test")  # type: ignore[union-attr]
                latency.is_hanging = True
            await stage.clock.sleep(2.0)
            assert _process(follower).driver is None
            stage.later(0.1, lambda: setattr(latency, "is_hanging", False))
            await follower.stop()
            follower.start()
            while _process(follower).driver is None:
                await stage.clock.sleep(0.1)
            first.kill()
            async with asyncio.timeout(SLOW_TAKE_OVER_S):
                await sent(client, 3, stored)
            first.start()
            await first.ready.wait()

    play(script, shape=THREE, prepare=watched)


def _process(machine: ReplicaMachine) -> ReplicaProcess:
    assert isinstance(machine.running, RunningEnode)
    return machine.running.process

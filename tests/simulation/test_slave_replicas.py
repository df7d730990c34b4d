"""A replica with the role SLAVE leads only when an operator elects it."""

from ortoo.enode.settings import NodeRole
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_failing_disks import BODY, fill, set_room
from tests.simulation.test_take_over import leader, sent, topic

THREE = ClusterShape(enodes=1, snodes=1, replicas=3)


def with_slave(stage: ScriptedCluster) -> None:
    """Make the second replica a SLAVE."""
    stage.cluster.replicas[1].chosen = {"role": NodeRole.SLAVE}


def test_no_planned_stop_makes_a_slave_the_leader() -> None:
    """Each leader stops in turn: it transfers leadership to the other replica, even if the SLAVE has the same log."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            slave = stage.cluster.replicas[1]
            for _ in range(4):
                await sent(client, 5, [])
                first = await leader(stage)
                assert first is not slave
                await first.stop()
                assert await leader(stage) is not slave
                first.start()
                await stage.clock.sleep(3)

    play(script, shape=THREE, prepare=with_slave)


def test_no_full_disk_makes_a_slave_the_leader() -> None:
    """The SLAVE stores frames, so it counts for the majority, but the other replica succeeds."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            slave = stage.cluster.replicas[1]
            await sent(client, 5, [])
            first = await leader(stage)
            assert first is not slave
            room = fill(first)
            async with client.producer("t") as producer:
                for _ in range(100):
                    await producer.send(BODY)
            second = await leader(stage)
            assert second not in (first, slave)
            set_room(first, room)
            await stage.clock.sleep(3)

    play(script, shape=THREE, prepare=with_slave)

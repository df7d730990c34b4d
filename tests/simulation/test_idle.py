"""The writes of an idle cluster."""

from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.testing.simulation.cluster.roles import SEGMENT_BYTES
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_equal_states import agreed, driver
from tests.simulation.test_take_over import THREE, leader, topic

IDLE_S = 130.0
"""Longer than all intervals of a replica's own work."""


def written(stage: ScriptedCluster) -> int:
    """The bytes that all replicas wrote since they started."""
    return sum(one.disk.current.platter.written_bytes for one in stage.cluster.replicas)


def test_idle_members_whose_state_is_larger_than_segments_write_nothing() -> None:
    """The log grows by no checkpoint and by no comparison of states, neither before an election nor after it."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
        first = await leader(stage)
        engine = driver(first).log.engine
        topic_id = engine.state.topics.all()[0].topic_id
        while sum(map(len, engine.state.checkpoint())) < 3 * SEGMENT_BYTES:
            number = len(list(engine.state.offsets.entries()))
            changes = [OffsetsCommitted(topic_id, f"group-{number + one:06d}", 0, ((0, 1),)) for one in range(500)]
            await engine.store(changes)
        await engine.housekeeping.checkpoint()
        assert engine.housekeeping.checkpoints.size_bytes > 3 * SEGMENT_BYTES
        await agreed(stage)
        for _ in range(2):
            await stage.clock.sleep(5.0)
            before = written(stage)
            await stage.clock.sleep(IDLE_S)
            assert written(stage) == before
            one = await leader(stage)
            await one.stop()
            one.start()
            await leader(stage)
            await agreed(stage)

    play(script, shape=THREE)

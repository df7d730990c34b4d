"""Expired lite topics on slow enodes: a sweep waits for all enodes together, and for a silent one once."""

from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.topics import Topic
from ortoo.snode.rocketmq.lite.expiry import LiteExpiry
from ortoo.snode.settings import SnodeSettings
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.world import World
from tests.simulation.scripted_cluster import ScriptedCluster, play

TTL_MS = 600_000
DELAY_S = 1.0
TIMEOUT_S = SnodeSettings().enode_timeout_ms / 1000


def store_lite_topics(world: World, parents: int, enodes: Sequence[str]) -> None:
    """Parents with one lite topic on each enode, created very long ago and without messages."""
    places = [PlacementSet.of((Placement(enode, 1, 1),)) for enode in enodes]
    known = []
    for number in range(parents):
        parent, topic_id = f"p{number}", 1_000 * (1 + number)
        known.append(
            Topic(parent, topic_id, 1, Permission.READ_WRITE, places[0], 1, MessageType.LITE, lite_ttl_ms=TTL_MS)
        )
        for at, placed in enumerate(places, 1):
            name, kind = f"%LMQ%|{parent}|{at}", MessageType.FIFO
            known.append(Topic(name, topic_id + at, 1, Permission.READ_WRITE, placed, 1, kind, parent=parent))
    sets = [tables.row_of(tables.placement_sets, one, set_id=placed.set_id) for placed in places for one in placed]
    with world.database.engine.begin() as connection:
        connection.execute(sa.insert(tables.topics), [tables.row_of(tables.topics, one) for one in known])
        connection.execute(sa.insert(tables.placement_sets), sets)


@pytest.fixture
def sweeps_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The duration of each finished sweep."""
    durations_s: list[float] = []
    sweep = LiteExpiry.sweep

    async def measured(self: LiteExpiry) -> None:
        began_s = self.clock.monotonic_s()
        await sweep(self)
        durations_s.append(self.clock.monotonic_s() - began_s)

    monkeypatch.setattr(LiteExpiry, "sweep", measured)
    return durations_s


async def until_left(stage: ScriptedCluster, left: set[str]) -> None:
    """Wait until only these lite topics exist."""
    async with stage.connect("operator") as mq:
        while {one.name for one in await mq.admin.list_topics() if one.name.startswith("%LMQ%")} != left:
            await stage.clock.sleep(1.0)


def test_a_sweep_waits_for_all_enodes_together(sweeps_s: list[float]) -> None:
    """It takes as long as the slowest answer, and not as long as all answers one after another."""
    enodes = [f"enode-{number}" for number in range(6)]

    async def script(stage: ScriptedCluster) -> None:
        for enode in enodes:
            stage.world.network.delay("snode-0", enode, DELAY_S)
        await until_left(stage, set())

    shape = ClusterShape(enodes=len(enodes), snodes=1)
    play(script, shape=shape, prepare=lambda stage: store_lite_topics(stage.world, 1, enodes))
    assert DELAY_S <= max(sweeps_s) < len(enodes) * DELAY_S


def test_a_silent_enode_delays_a_sweep_once(sweeps_s: list[float]) -> None:
    """It is not asked again for the lite topics of each parent. Those of the other enode end."""
    parents, silent = 4, "enode-0"

    async def script(stage: ScriptedCluster) -> None:
        stage.world.network.delay("snode-0", silent, 20 * TIMEOUT_S)
        await until_left(stage, {f"%LMQ%|p{number}|1" for number in range(parents)})

    shape = ClusterShape(enodes=2, snodes=1)
    play(script, shape=shape, prepare=lambda stage: store_lite_topics(stage.world, parents, [silent, "enode-1"]))
    assert TIMEOUT_S <= max(sweeps_s) < 2 * TIMEOUT_S

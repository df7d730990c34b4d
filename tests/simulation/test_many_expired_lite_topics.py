"""Very many lite topics that expire together: they end within a few sweeps, by calls of bounded size."""

from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.common.grpc.channels import Channels
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.topics import Topic
from ortoo.snode.app import CLIENT_SWEEP_INTERVAL_S
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.rocketmq.lite import expiry
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.world import World
from tests.integration.lite_client import LiteClient
from tests.simulation.scripted_cluster import ScriptedCluster, play

PARENTS, EACH = 4, 300
TTL_MS = 600_000
WORK_PER_SWEEP = 600


def store_lite_topics(world: World) -> None:
    """Parents and their lite topics on one enode, all created very long ago and without messages."""
    placed = PlacementSet.of((Placement("enode-0", 1, 1),))
    known = []
    for number in range(PARENTS):
        parent = f"p{number}"
        lite = Topic(parent, 1 + number, 1, Permission.READ_WRITE, placed, 1, MessageType.LITE, lite_ttl_ms=TTL_MS)
        known.append(lite)
        for at in range(EACH):
            name, topic_id = f"%LMQ%|{parent}|{at:04}", 1_000 * (1 + number) + at
            known.append(Topic(name, topic_id, 1, Permission.READ_WRITE, placed, 1, MessageType.FIFO, parent=parent))
    with world.database.engine.begin() as connection:
        connection.execute(sa.insert(tables.topics), [tables.row_of(tables.topics, one) for one in known])
        rows = [tables.row_of(tables.placement_sets, one, set_id=placed.set_id) for one in placed]
        connection.execute(sa.insert(tables.placement_sets), rows)


def test_many_lite_topics_end_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sweep ends as many as it may, and one with a message stays. A million thus end within an hour."""
    calls: list[tuple[str, int]] = []
    end_lite_topics = NameServerClient.end_lite_topics

    async def counted(self: NameServerClient, **topics: Any) -> Any:
        [(what, listed)] = topics.items()
        calls.append((what, len(listed)))
        return await end_lite_topics(self, **topics)

    monkeypatch.setattr(NameServerClient, "end_lite_topics", counted)
    monkeypatch.setattr(expiry, "WORK_PER_SWEEP", WORK_PER_SWEEP)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as mq, Channels() as channels:
            client = LiteClient(MessagingServiceStub(channels.channel_to(stage.cluster.addresses[0])))
            assert (await client.send(("0007", b"used"), topic="p2")).status.code == Code.OK
            sent_s = stage.clock.monotonic_s()
            while len(left := [one.name for one in await mq.admin.list_topics() if one.name.startswith("%LMQ%")]) > 1:
                await stage.clock.sleep(1.0)
            assert left == ["%LMQ%|p2|0007"]
            # Two sweeps close them, and two sweeps delete them a minute later.
            assert stage.clock.monotonic_s() - sent_s <= expiry.CLOSED_GRACE_S + 4 * CLIENT_SWEEP_INTERVAL_S

    play(script, shape=ClusterShape(enodes=1, snodes=1), prepare=lambda stage: store_lite_topics(stage.world))
    assert max(size for _, size in calls) <= expiry.AT_ONCE
    ended = Counter[str]()
    for what, size in calls:
        ended[what] += size
    assert ended == {"close": PARENTS * EACH - 1, "delete": PARENTS * EACH - 1}
    # A parent has two pages, and a sweep deletes in two or three parts.
    assert len(calls) <= 2 * PARENTS + 3 * PARENTS * EACH // WORK_PER_SWEEP + 2


def test_a_million_lite_topics_end_within_an_hour() -> None:
    """Each sweep may take as long as the time between two sweeps."""
    sweeps = 1_000_000 / expiry.WORK_PER_SWEEP
    assert 2 * CLIENT_SWEEP_INTERVAL_S * sweeps + expiry.CLOSED_GRACE_S <= 3_600

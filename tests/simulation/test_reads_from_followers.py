"""Ranges of queues read from followers: the same answers, and less load on the leader."""

from typing import Any

import grpc
import pytest

from ortoo.client import Client, Queue
from ortoo.common.grpc.channels import Channels
from ortoo.enode.app import RunningEnode
from ortoo.enode.replication.driver import Driver
from ortoo.snode.enodes.request_stream import PEER_RETRY_S
from ortoo.snode.settings import ReadFrom
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.v1 import enode_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_equal_states import agreed, driver
from tests.simulation.test_take_over import THREE, bodies, leader, sent, topic


def from_followers(stage: ScriptedCluster) -> None:
    """Let the snode read from followers."""
    for snode in stage.cluster.snodes:
        snode.chosen["read_from"] = ReadFrom.FOLLOWERS


def reads(machine: ReplicaMachine) -> int:
    """The number of batches that a replica returned to readers."""
    reader = driver(machine).log.engine.reader
    return reader.hits + reader.misses


async def filled(
    stage: ScriptedCluster, client: Client
) -> tuple[Queue, list[bytes], ReplicaMachine, list[ReplicaMachine]]:
    """A queue with messages that all replicas have; the leader, and the others."""
    await topic(stage, client)
    stored: list[bytes] = []
    queue = await sent(client, 10, stored)
    await agreed(stage)
    first = await leader(stage)
    return queue, stored, first, [one for one in stage.cluster.replicas if one is not first]


def test_a_range_is_read_from_a_member_that_follows() -> None:
    """The leader returns none of it. Reads that wait for new messages wait at the leader."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, stored, first, others = await filled(stage, client)
            before = reads(first), sum(map(reads, others))
            assert await bodies(client, queue) == stored
            assert reads(first) == before[0]
            assert sum(map(reads, others)) > before[1]

    play(script, shape=THREE, prepare=from_followers)


@pytest.mark.parametrize("harm", ["kill", "cut off"])
def test_what_a_follower_lacks_or_nobody_answers_for_the_leader_gives(harm: str) -> None:
    """G3: a lagging follower never reports its own end as the queue's, and a dead one fails no read."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, stored, first, others = await filled(stage, client)
            late = others[queue.queue_id % 2]
            if harm == "kill":
                late.kill()
            else:
                for other in stage.cluster.replicas:
                    if other is not late:
                        stage.world.network.partition(late.name, other.name, both_ways=True)
            assert isinstance(driver(first), Driver)
            await sent(client, 10, stored)
            assert await bodies(client, queue) == stored

    play(script, shape=THREE, prepare=from_followers)


def test_readers_go_on_while_the_leader_changes() -> None:
    """The former leader follows then, the follower leads, and both return all acknowledged messages."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, stored, first, _ = await filled(stage, client)
            await first.stop()
            await sent(client, 5, stored)
            assert await bodies(client, queue) == stored
            first.start()
            await agreed(stage)
            assert await bodies(client, queue) == stored

    play(script, shape=THREE, prepare=from_followers)


def test_a_stream_that_came_to_a_follower_ends_when_that_member_leads() -> None:
    """A snode that learns of a leader before it is ready would otherwise be forwarded for the whole epoch."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client, Channels() as channels:
            queue, _, first, others = await filled(stage, client)
            (topic_id,) = {topic_id for topic_id, _ in driver(first).log.engine.catalog.queues}
            request = enode_pb2.FetchBatchesRequest(topic_id=topic_id, queue_id=queue.queue_id, bytes_max=1 << 10)
            early: dict[str, Any] = {
                one.name: EnodeServiceStub(channels.channel_to(one.address)).FetchBatches() for one in others
            }
            for call in early.values():
                await call.write(request)
                assert (await call.read()).failure.HasField("moved")
            await first.stop()
            leads = await leader(stage)
            call = early[leads.name]
            assert await call.read() is grpc.aio.EOF
            again: Any = EnodeServiceStub(channels.channel_to(leads.address)).FetchBatches()
            await again.write(request)
            assert (await again.read()).batches

    play(script, shape=THREE)


def test_a_follower_that_does_not_answer_the_snode_holds_up_one_read_and_not_each() -> None:
    """Name servers hear from it, so that it counts as a follower for as long as the network stays like that."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, stored, _, others = await filled(stage, client)
            late = others[queue.queue_id % 2]
            snode = stage.cluster.snodes[0]
            stage.world.network.partition(late.name, snode.name, both_ways=True)
            begun_s = stage.clock.monotonic_s()
            for _ in range(5):
                assert await bodies(client, queue) == stored
            assert stage.clock.monotonic_s() < begun_s + 6.0

    play(script, shape=THREE, prepare=from_followers)


def test_a_member_that_refuses_to_be_read_is_asked_itself_later() -> None:
    """One of an older version, or one opening its log, names the leader: that is not taken for its own address."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            queue, stored, _, others = await filled(stage, client)
            other = others[queue.queue_id % 2]
            assert isinstance(other.running, RunningEnode)
            service = other.running.process.leader_service
            given, service.committed_reads = service.committed_reads, None
            assert await bodies(client, queue) == stored
            service.committed_reads = given
            await stage.clock.sleep(PEER_RETRY_S)
            before = reads(other)
            assert await bodies(client, queue) == stored
            assert reads(other) > before

    play(script, shape=THREE, prepare=from_followers)

"""An enode with three replicas, each on a machine: acknowledged data stay with every leader."""

import contextlib
from collections.abc import Callable

import grpc
import pytest

from ortoo.client import Client, OrtooError, Producer, ProducerSettings, Queue
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.v1 import enode_replicas_pb2 as pb
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceStub
from ortoo.v1.replica_report_pb2 import ReplicaId
from tests.simulation.scripted_cluster import ScriptedCluster, play

THREE = ClusterShape(enodes=1, snodes=1, replicas=3)
TAKE_OVER_S = 6.0
"""From the fault to the first acknowledged send, including the client's retry delay."""
SLOW_TAKE_OVER_S = 20.0
HAND_OVER_S = 0.3
"""No send takes longer when a leader stops."""


async def leader(stage: ScriptedCluster) -> ReplicaMachine:
    """The leader, as soon as one serves."""
    while True:
        for one in stage.cluster.replicas:
            if one.is_leading:
                return one
        await stage.clock.sleep(0.05)


async def topic(stage: ScriptedCluster, client: Client) -> None:
    """A topic of one queue, created as soon as an enode is available."""
    await leader(stage)
    while True:
        with contextlib.suppress(OrtooError):
            await client.admin.ensure_topic("t", queue_count=1)
            return
        await stage.clock.sleep(0.1)


async def bodies(client: Client, queue: Queue) -> list[bytes]:
    """All of a queue."""
    return [body async for batch in client.fetch(queue) for body in batch.bodies()]


async def sent(client: Client, count: int, stored: list[bytes]) -> Queue:
    """Send messages one after another, each until it is acknowledged once; their queue."""
    queue: Queue | None = None
    while count:
        with contextlib.suppress(OrtooError):  # without a leader there is no queue to send to
            async with client.producer("t") as producer:
                while count:
                    body = b"%d" % len(stored)
                    receipt = await producer.send(body)
                    queue, count = receipt.queue, count - 1
                    stored.append(body)
    assert queue is not None
    return queue


async def harmed(stage: ScriptedCluster, member: ReplicaMachine, harm: str) -> Callable[[], object]:
    """Inject a fault into the leader; returns the undo."""
    if harm == "kill":
        member.kill()
    elif harm == "power cut":
        member.cut_power()
    elif harm == "freeze":
        member.pause()
        return member.resume
    elif harm == "isolate":
        return stage.world.network.isolate(member.name)
    else:
        await member.stop()
    return member.start


@pytest.mark.parametrize("harm", ["kill", "power cut", "freeze", "isolate", "stop"])
def test_a_member_takes_over(harm: str) -> None:
    """The leader dies, loses power, freezes, is cut off or stops: another serves soon, with all acknowledged data.

    A frozen or isolated leader acknowledges nothing afterwards that the others lack, and a returning one follows.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 10, stored)
            for _ in range(2):
                begun_s = stage.clock.monotonic_s()
                undo = await harmed(stage, await leader(stage), harm)
                await sent(client, 1, stored)
                assert stage.clock.monotonic_s() - begun_s < TAKE_OVER_S
                undo()
                await sent(client, 10, stored)
                found = await bodies(client, queue)
                assert [one for one in stored if one not in found] == []
                await stage.clock.sleep(3)

    play(script, shape=THREE)


def test_three_of_five_go_on_without_the_two_that_have_most() -> None:
    """The leader and another one are cut off from the other three, and name servers hear all five."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            second, *others = [one for one in stage.cluster.replicas if one is not first]
            network = stage.world.network
            parted = [network.partition(a.name, b.name, both_ways=True) for a in (first, second) for b in others]
            begun_s = stage.clock.monotonic_s()
            while not any(one.is_leading for one in others):
                await stage.clock.sleep(0.1)
            assert stage.clock.monotonic_s() - begun_s < SLOW_TAKE_OVER_S
            for heal in parted:
                heal()

    play(script, shape=ClusterShape(enodes=1, snodes=1, replicas=5))


@pytest.mark.parametrize("writing_s", [0.5, 1.0, 1.5])
def test_a_member_takes_over_where_disks_are_slow(writing_s: float) -> None:
    """The writes before leadership take longer than the first proposal's timeout: the next one gets more time."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            others = [one for one in stage.cluster.replicas if one is not first]
            for one in others:
                latency = one.disk.latency
                latency.least_s, latency.usual_s, latency.seldom = 0.8 * writing_s, 1.2 * writing_s, 0.0
            first.kill()
            begun_s = stage.clock.monotonic_s()
            assert await leader(stage) in others
            assert stage.clock.monotonic_s() - begun_s < SLOW_TAKE_OVER_S
            for one in others:
                one.disk.latency.usual_s = one.disk.latency.least_s = 0.001
            first.start()

    play(script, shape=THREE)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_leader_that_stops_delays_no_send_by_much(seed: int) -> None:
    """The next leader is elected when it releases the lease, and informs snodes: no send fails or waits for a poll.

    Processes poll every half second, and clients wait between two attempts; both delays would show here.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 3, [])
            took_s: list[float] = []

            async def send(producer: Producer) -> None:
                begun_s = stage.clock.monotonic_s()
                await producer.send(b"%d" % len(took_s))
                took_s.append(stage.clock.monotonic_s() - begun_s)

            async with client.producer("t", ProducerSettings(linger_ms=1)) as producer, Background("load") as load:
                for _ in range(2):
                    first = await leader(stage)
                    stopping = load.spawn("stop", first.stop())
                    for _ in range(100):
                        load.spawn("send", send(producer))
                        await stage.clock.sleep(0.02)
                    await stopping
                    first.start()
                    await stage.clock.sleep(3)
            assert len(took_s) == 200
            assert max(took_s) < HAND_OVER_S

    play(script, seed=seed, shape=THREE)


def test_a_sole_survivor_acknowledges_nothing() -> None:
    """With two of three replicas down no send is acknowledged; with one back, all are."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 5, stored)
            first = await leader(stage)
            others = [one for one in stage.cluster.replicas if one is not first]
            for one in others:
                one.kill()
            async with client.producer("t") as producer:
                with pytest.raises(OrtooError):
                    await producer.send(b"alone")
            others[0].start()
            await sent(client, 5, stored)
            found = await bodies(client, queue)
            assert [one for one in stored if one not in found] == []
            others[1].start()

    play(script, shape=THREE)


def test_everything_is_there_after_the_power_failed_everywhere() -> None:
    """All three lose power at once, with unsynced data: all acknowledged messages are there again."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 30, stored)
            for one in stage.cluster.replicas:
                one.cut_power()
            for one in stage.cluster.replicas:
                one.start()
            await sent(client, 1, stored)
            found = await bodies(client, queue)
            assert [one for one in stored if one not in found] == []

    play(script, shape=THREE)


def test_an_emptied_disk_joins_as_another_member() -> None:
    """A disk is lost: the empty one is added, catches up and votes. With the old one removed it is relied on."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client, Channels() as channels:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 20, stored)
            first = await leader(stage)
            lost = next(one for one in stage.cluster.replicas if one is not first)
            lost.kill()
            lost.disk.replace_with_empty()
            lost.start()
            await lost.ready.wait()
            operator = EnodeReplicasServiceStub(channels.channel_to(first.address))
            before = await operator.DescribeReplicas(pb.DescribeReplicasRequest(enode=lost.enode))
            old = next(one.replica for one in before.replicas if one.replica.number == lost.number)
            assert isinstance(lost.running, RunningEnode)
            new = ReplicaId(number=lost.number, disk=lost.running.process.membership.stored.replica.disk)
            address = lost.running.replica_address
            await operator.AddReplica(pb.AddReplicaRequest(enode=lost.enode, replica=new, replica_address=address))
            while True:
                described = await operator.DescribeReplicas(pb.DescribeReplicasRequest(enode=lost.enode))
                if any(one.replica == new and one.is_voter for one in described.replicas):
                    break
                await stage.clock.sleep(0.1)
            while any(one.replica == old for one in described.replicas):
                with contextlib.suppress(grpc.RpcError):  # the change before is not committed yet
                    await operator.RemoveReplica(pb.RemoveReplicaRequest(enode=lost.enode, replica=old))
                described = await operator.DescribeReplicas(pb.DescribeReplicasRequest(enode=lost.enode))
                await stage.clock.sleep(0.1)
            await sent(client, 5, stored)
            third = next(one for one in stage.cluster.replicas if one not in (first, lost))
            third.kill()
            first.kill()
            first.start()
            await sent(client, 5, stored)
            found = await bodies(client, queue)
            assert [one for one in stored if one not in found] == []
            third.start()

    play(script, shape=THREE)

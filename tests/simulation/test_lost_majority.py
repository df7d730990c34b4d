"""Two of three disks are lost permanently: an operator continues with the third, by an explicit command."""

import contextlib
from pathlib import Path

import grpc

from ortoo.client import OrtooError
from ortoo.common.grpc.channels import Channels
from ortoo.enode.app import RunningEnode
from ortoo.enode.offline.elect import become_single_replica, read_survivor
from ortoo.enode.recovery.opening import durable_end
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.v1 import enode_replicas_pb2 as pb
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceStub
from ortoo.v1.replica_report_pb2 import ReplicaId
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, bodies, leader, sent, topic


def test_the_last_disk_goes_on_and_grows_to_a_set_of_three_again() -> None:
    """Its data are there, it leads alone until two empty disks have joined, and a disk of the former set is refused.

    Before the operator's command it acknowledges nothing; the command first shows the state to continue with.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 20, stored)
            first = await leader(stage)
            left, late = [one for one in stage.cluster.replicas if one is not first]
            await stage.clock.sleep(2)
            late.kill()
            first.cut_power()
            first.disk.replace_with_empty()
            await left.stop()
            disk, folder = left.disk.open(), Path("/") / left.name
            before = read_survivor(disk, folder)
            assert f"ends at position {durable_end(disk, folder)}" in before.describe(durable_end(disk, folder))
            assert len(before.summary.summary.configuration.voters) == 3
            end = become_single_replica(disk, folder, stage.clock, stage.world.random_streams.stream("operator"))
            assert end == durable_end(disk, folder)
            assert read_survivor(disk, folder).stored.set_id != before.stored.set_id
            left.start()
            await sent(client, 5, stored)
            assert await bodies(client, queue) == stored
            assert await leader(stage) is left

            late.start()  # its disk is of the former set: it neither receives from the others nor is accepted by them
            await stage.clock.sleep(5)
            assert await leader(stage) is left
            late.kill()
            late.disk.replace_with_empty()
            for joiner in (late, first):
                joiner.start()
                await joined(stage, left, joiner)
            await sent(client, 5, stored)
            left.kill()
            await sent(client, 5, stored)
            assert await bodies(client, queue) == stored
            left.start()

    play(script, shape=THREE)


async def joined(stage: ScriptedCluster, leads: ReplicaMachine, joiner: ReplicaMachine) -> None:
    """Add an empty disk, and wait until it votes."""
    await joiner.ready.wait()
    assert isinstance(joiner.running, RunningEnode)
    kept, address = joiner.running.process.membership.stored.replica, joiner.running.replica_address
    member = ReplicaId(number=kept.number, disk=kept.disk)
    async with Channels() as channels:
        operator = EnodeReplicasServiceStub(channels.channel_to(leads.address))
        while True:
            with contextlib.suppress(grpc.RpcError, OrtooError):
                request = pb.AddReplicaRequest(enode=leads.enode, replica=member, replica_address=address)
                members = (await operator.AddReplica(request)).replicas
                if any(one.replica == member and one.is_voter for one in members):
                    return
            await stage.clock.sleep(0.2)

"""Operations on an enode's replicas: complete when reported as complete, and never irreversible by accident."""

import pytest

from ortoo.client import Conflict
from ortoo.common.grpc.channels import Channels
from ortoo.enode.app import RunningEnode
from ortoo.enode.rpc.replicas.peers import ask_to_join
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.v1.replication_pb2 import JoinRequest
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, sent, topic


def test_a_member_that_the_others_need_is_not_removed() -> None:
    """With one of three away the other two need each other: otherwise no leader could be elected again."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            second, third = [one for one in stage.cluster.replicas if one is not first]
            third.kill()
            await stage.clock.sleep(2)
            with pytest.raises(Conflict, match=f"start .*{third.number}"):
                await client.admin.replicas.remove(first.enode, second.number)
            await sent(client, 5, [])
            assert await leader(stage) is first
            await client.admin.replicas.remove(first.enode, third.number)
            await sent(client, 5, [])

    play(script, shape=THREE)


def test_a_disk_is_added_when_it_is_said_to_be() -> None:
    """It does not replace the lost one with its number. Also when it was admitted before, and its addition refused."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            lost = next(one for one in stage.cluster.replicas if one is not first)
            lost.cut_power()
            lost.disk.replace_with_empty()
            await stage.clock.sleep(5)
            with pytest.raises(Conflict, match="exists already and is away; start it"):
                await client.admin.replicas.add(lost.enode, lost.number)
            lost.start()
            await lost.ready.wait()
            assert isinstance(lost.running, RunningEnode)
            assert isinstance(first.running, RunningEnode)
            of, new = first.running.process, lost.running.process.membership.stored.replica
            async with Channels() as channels:
                kept, cluster = of.membership.stored, of.settings.cluster
                request = JoinRequest(
                    cluster=cluster, enode=lost.enode, set_id=kept.set_id, created_at_ms=kept.created_at_ms
                )
                await ask_to_join(lost.running.replica_address, request, channels)
            await stage.clock.sleep(3)
            await client.admin.replicas.add(lost.enode, lost.number)
            assert of.driver is not None
            while new not in of.driver.replica.log.configuration.voters:
                await stage.clock.sleep(0.1)

    play(script, shape=THREE)


def test_an_empty_disk_that_would_begin_a_set_keeps_no_other_from_being_added() -> None:
    """Two of five disks are lost, including that of replica 1, which initializes a set when its folder is empty."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            lost = [one for one in stage.cluster.replicas if one.number in (1, 2)]
            for one in lost:
                one.cut_power()
                one.disk.replace_with_empty()
            assert (await leader(stage)).number > 2
            for one in lost:
                one.start()
            await stage.clock.sleep(5)
            for one in reversed(lost):
                await client.admin.replicas.add(one.enode, one.number)
                await stage.clock.sleep(5)
            [enode] = await client.admin.replicas.list("enode-0")
            assert {1, 2} == {one.number for one in enode.replicas if one.state == "following" and one.number < 3}

    play(script, shape=ClusterShape(enodes=1, snodes=1, replicas=5))

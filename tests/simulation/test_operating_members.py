"""What operators ask of an enode's members: done when it is said to be done, and never what nobody could undo."""

import pytest

from ortoo.client import Conflict
from ortoo.common.grpc.channels import Channels
from ortoo.enode.reigns.member import RunningMember
from ortoo.enode.rpc.members.peers import join
from ortoo.v1.members_pb2 import JoinRequest
from tests.simulation.stage import Stage, play
from tests.simulation.test_take_over import THREE, leader, sent, topic


def test_a_member_that_the_others_need_is_not_removed() -> None:
    """With one of three away the other two cannot do without each other: nobody would ever lead again."""

    async def script(stage: Stage) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            second, third = [one for one in stage.cluster.members if one is not first]
            third.kill()
            await stage.clock.sleep(2)
            with pytest.raises(Conflict, match=f"start .*{third.number}"):
                await client.admin.members.remove(first.enode, second.number)
            await sent(client, 5, [])
            assert await leader(stage) is first
            await client.admin.members.remove(first.enode, third.number)
            await sent(client, 5, [])

    play(script, shape=THREE)


def test_a_disk_is_added_when_it_is_said_to_be() -> None:
    """Not in place of the lost one that has its number; and also when it was let in before, and its adding refused."""

    async def script(stage: Stage) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            lost = next(one for one in stage.cluster.members if one is not first)
            lost.cut_power()
            lost.disk.destroyed()
            await stage.clock.sleep(5)
            with pytest.raises(Conflict, match="is away"):
                await client.admin.members.add(lost.enode, lost.number)
            lost.start()
            await lost.ready.wait()
            assert isinstance(lost.running, RunningMember)
            assert isinstance(first.running, RunningMember)
            of, new = first.running.lives, lost.running.lives.joining.kept.member
            async with Channels() as channels:
                kept, cluster = of.joining.kept, of.settings.cluster
                request = JoinRequest(
                    cluster=cluster, enode=lost.enode, set_id=kept.set_id, created_at_ms=kept.created_at_ms
                )
                await join(lost.running.member_address, request, channels)
            await stage.clock.sleep(3)
            await client.admin.members.add(lost.enode, lost.number)
            assert of.driver is not None
            while new not in of.driver.member.log.members.voters:
                await stage.clock.sleep(0.1)

    play(script, shape=THREE)

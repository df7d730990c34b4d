"""The runbook of a lost disk, followed literally: remove the replica, start it with an empty folder, add it."""

import asyncio

import pytest

from ortoo.client import Client
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_doctor_faults import Patient
from tests.simulation.test_doctor_remedies import typed
from tests.simulation.test_take_over import THREE, bodies, leader, sent, topic

HEALTHY_WITHIN_S = 60.0


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_lost_disk_is_replaced_and_the_leader_stays(seed: int) -> None:
    """No step needs the new disk's answer, so the leader keeps its majority and its epoch."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 20, stored)
            first = await leader(stage)
            lost = next(one for one in stage.cluster.replicas if one is not first)
            epoch = await epoch_of(stage, client)
            lost.cut_power()
            lost.disk.replace_with_empty()
            it = Patient(stage, client)
            await typed(it, f"ortoo enode remove {lost.enode} {lost.number}")
            lost.start()
            await state_of(stage, client, lost, "waiting")
            await typed(it, f"ortoo enode add {lost.enode} {lost.number}")
            await state_of(stage, client, lost, "following")
            lost.pause()  # as while it opens the log that it has received
            await sent(client, 20, stored)
            await stage.clock.sleep(5)
            lost.resume()
            assert await epoch_of(stage, client) == epoch
            assert await leader(stage) is first
            assert await bodies(client, queue) == stored

    play(script, shape=THREE, seed=seed)


async def epoch_of(stage: ScriptedCluster, client: Client) -> int:
    """The epoch of the leader, when the name server has its report."""
    async with asyncio.timeout(HEALTHY_WITHIN_S):
        while True:
            [enode] = await client.admin.replicas.list("enode-0")
            if epochs := [one.epoch for one in enode.replicas if one.number == enode.leader]:
                return epochs[0]
            await stage.clock.sleep(0.2)


async def state_of(stage: ScriptedCluster, client: Client, machine: ReplicaMachine, state: str) -> None:
    """Wait until the replica, and no former disk of its number, has this state."""
    async with asyncio.timeout(HEALTHY_WITHIN_S):
        while True:
            [enode] = await client.admin.replicas.list("enode-0")
            if [one.state for one in enode.replicas if one.number == machine.number] == [state]:
                return
            await stage.clock.sleep(0.2)

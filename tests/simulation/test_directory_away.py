"""Replicas without name servers, or with an old directory: the leader continues, and nothing acknowledged is lost."""

import asyncio

import pytest

from ortoo.client import Client
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import TAKE_OVER_S, THREE, bodies, leader, sent, topic

AWAY_S = 60.0
SEND_MAX_S = 1.0
"""No send waits for a directory."""


def epoch_of(machine: ReplicaMachine) -> int:
    """The epoch in which a replica leads."""
    assert isinstance(machine.running, RunningEnode)
    assert machine.running.process.driver is not None
    return machine.running.process.driver.leading_epoch or 0


async def sending(stage: ScriptedCluster, client: Client, stored: list[bytes], seconds: float) -> None:
    """Send at intervals for `seconds`; each send is acknowledged at once, and none is refused."""
    async with client.producer("t") as producer:
        until_s = stage.clock.monotonic_s() + seconds
        while stage.clock.monotonic_s() < until_s:
            body = b"%d" % len(stored)
            async with asyncio.timeout(SEND_MAX_S):
                await producer.send(body)
            stored.append(body)
            await stage.clock.sleep(1.0)


@pytest.mark.parametrize("what", ["the database", "all name servers"])
def test_nobody_takes_over_while_the_directory_is_away(what: str) -> None:
    """For a minute no send is refused and the leader stays; a leader that dies then is replaced when it is back."""

    def away(stage: ScriptedCluster) -> None:
        stage.world.database.away = True
        for one in stage.cluster.name_servers if what == "all name servers" else ():
            one.kill()

    def back(stage: ScriptedCluster) -> None:
        stage.world.database.away = False
        for one in stage.cluster.name_servers:
            one.start()

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 3, stored)
            first = await leader(stage)
            epoch = epoch_of(first)
            away(stage)
            await sending(stage, client, stored, AWAY_S)
            assert (await leader(stage), epoch_of(first)) == (first, epoch)
            first.kill()
            await stage.clock.sleep(5.0)
            assert not any(one.is_leading for one in stage.cluster.replicas)
            back(stage)
            back_s = stage.clock.monotonic_s()
            await sent(client, 1, stored)
            assert stage.clock.monotonic_s() - back_s < TAKE_OVER_S
            first.start()
            await sent(client, 3, stored)
            assert [one for one in stored if one not in await bodies(client, queue)] == []

    play(script, shape=THREE)


def test_an_old_dump_of_the_directory_costs_no_message() -> None:
    """After two elections the directory is restored from before: its epochs are stale, and a new one is found."""

    async def script(stage: ScriptedCluster) -> None:
        database = stage.world.database
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 3, stored)
            dump = database.backup()
            epochs = []
            for _ in range(2):
                leads = await leader(stage)
                epochs.append(epoch_of(leads))
                leads.kill()
                await sent(client, 2, stored)
                leads.start()
                await leads.ready.wait()
            await sending(stage, client, stored, 2.0)
            database.restore(dump)
            leads = await leader(stage)
            epochs.append(epoch_of(leads))
            await sending(stage, client, stored, 5.0)
            leads.kill()
            await sent(client, 2, stored)
            epochs.append(epoch_of(await leader(stage)))
            leads.start()
            await sent(client, 2, stored)
            assert epochs == sorted(set(epochs))
            assert [one for one in stored if one not in await bodies(client, queue)] == []

    play(script, shape=THREE)

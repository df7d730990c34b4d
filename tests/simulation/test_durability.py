"""The faults that an acknowledged send survives in an enode of three replicas, by the chosen durability."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from ortoo.client import Client, OrtooError
from ortoo.enode.app import RunningEnode
from ortoo.enode.settings import Durability
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import TAKE_OVER_S, THREE, bodies, leader, sent, topic


def cut_off(stage: ScriptedCluster, member: ReplicaMachine) -> Callable[[], object]:
    """Let a leader reach clients and name servers, and no other replica; returns the undo."""
    others = [one for one in stage.cluster.replicas if one is not member]
    undo = [stage.world.network.partition(member.name, other.name, both_ways=True) for other in others]
    return lambda: [one() for one in undo]


@contextlib.asynccontextmanager
async def sending(stage: ScriptedCluster, client: Client, stored: list[bytes]) -> AsyncIterator[None]:
    """Send one message after another, and record those that are acknowledged."""

    async def send() -> None:
        number = 1000
        while True:
            with contextlib.suppress(OrtooError):
                async with client.producer("t") as producer:
                    while True:
                        number += 1
                        await producer.send(b"%d" % number)
                        stored.append(b"%d" % number)
                        await stage.clock.sleep(0.02)

    task = asyncio.ensure_future(send())  # noqa: TID251  # ended below
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def cut_messages(stage: ScriptedCluster) -> int:
    """The number of messages that the replicas truncated from their logs."""
    running = [one.running for one in stage.cluster.replicas]
    return sum(one.process.truncated_messages for one in running if isinstance(one, RunningEnode))


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("durability", Durability)
def test_a_take_over_loses_at_most_what_only_the_leader_had(durability: Durability, seed: int) -> None:
    """E-221: a leader that reaches clients and no replica dies. Its last acknowledgements are lost, or it gave none.

    With `leader` the loss is counted by the replica that had the messages, and the producer continues. With `replicas`
    nothing is lost.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 3, stored)
            first = await leader(stage)
            running = first.running
            async with sending(stage, client, stored):
                await stage.clock.sleep(0.5)
                heal, cut_off_s = cut_off(stage, first), stage.clock.monotonic_s()
                before = len(stored)
                await stage.clock.sleep(0.4)
                only_there = len(stored) - before
                while await leader(stage) is first:
                    await stage.clock.sleep(0.05)
                assert stage.clock.monotonic_s() - cut_off_s < TAKE_OVER_S, "although it has the longest log"
                heal()
                before = len(stored)
                while len(stored) < before + 20:  # the same producer continues
                    await stage.clock.sleep(0.05)
            assert isinstance(running, RunningEnode)
            await stage.clock.sleep(3.0)
            found = await bodies(client, queue)
            lost = [one for one in stored if one not in found]
            if durability is Durability.REPLICAS:
                assert lost == []
            else:
                assert only_there > 10
                assert 0 < len(lost) <= cut_messages(stage)
            assert len(found) == len(set(found)), "nothing is stored twice"

    def prepare(stage: ScriptedCluster) -> None:
        for one in stage.cluster.replicas:
            one.chosen["durability"] = durability

    play(script, shape=THREE, seed=seed, prepare=prepare)

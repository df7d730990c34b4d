"""What the model of the simulation excuses when the only copy of a log is damaged, and what it does not."""

import pytest

from ortoo.client import Queue
from ortoo.testing.simulation.oracle.oracle import Oracle
from ortoo.testing.simulation.oracle.received import NOWHERE, Delivery
from ortoo.testing.simulation.world import World


def found(queue: Queue, *, damaged: str, begun_anew: str) -> list[str]:
    """The promises that are broken when an acknowledged message of a queue comes again, and its offset is gone."""
    world = World(1)
    oracle = Oracle(world)

    async def run() -> None:
        sent = oracle.sent.begin("t", "one", 0.0)
        delivery = Delivery("g", "m", sent, queue, 0, 1, 0.0)
        for machine in ("enode-0", "enode-1"):
            oracle.disturbed(machine)
        oracle.leases.delivered(delivery, 1000)
        oracle.leases.acknowledging("g", sent)
        oracle.leases.acknowledged("g", sent)
        oracle.offsets.durable("g", queue, 1)
        await world.clock.sleep(1000.0)
        oracle.disk_damaged(damaged)
        await world.clock.sleep(1.0)
        oracle.disturbed(begun_anew)
        oracle.leases.delivered(delivery, 1000)
        oracle.offsets.read("g", queue, -1, asked_at_s=oracle.now_s())
        oracle.offsets.began("g", queue, 0, opened_at_s=oracle.now_s())

    with world.running():
        world.loop.run_until_complete(world.loop.create_task(run(), context=world.loop.outside.context))
    return [one.promise for one in world.findings.all]


ALL = ["G8", "G10", "G10"]


@pytest.mark.parametrize(
    ("enode", "damaged", "begun_anew", "promises"),
    [
        ("enode-0", "enode-0", "enode-0", []),
        ("enode-0", "enode-0", "enode-1", ALL),
        ("enode-0", "enode-1", "enode-1", ALL),
        (NOWHERE, "enode-1", "enode-1", []),
        (NOWHERE, "enode-1", "enode-0", ALL),
    ],
)
def test_what_a_damaged_frame_said_of_a_group_is_excused_once_it_was_read_again(
    enode: str, damaged: str, begun_anew: str, promises: list[str]
) -> None:
    """While the process goes on it has all in memory; where nobody names the enode, as with RocketMQ, any counts."""
    assert found(Queue("t", enode, 0), damaged=damaged, begun_anew=begun_anew) == promises

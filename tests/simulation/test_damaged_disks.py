"""The losses that the simulation's model excuses when the only copy of a log is damaged, and those it does not."""

from typing import Any

import pytest

from ortoo.client import Queue
from ortoo.enode.pops.key_order import KeyOrder
from ortoo.testing.simulation.world import World
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.oracle.received import NOWHERE, ObservedDelivery
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.simulation import run


def found(queue: Queue, *, damaged: str, begun_again: str) -> list[str]:
    """The broken promises when an acknowledged message of a queue comes again, and its offset is lost."""
    world = World(1)
    oracle = Oracle(world)

    async def run() -> None:
        sent = oracle.sent.begin("t", "one", 0.0)
        delivery = ObservedDelivery("g", "m", sent, queue, 0, 1, 0.0)
        for machine in ("enode-0", "enode-1"):
            oracle.disturbed(machine)
        oracle.leases.delivered(delivery, 1000)
        oracle.leases.begin_ack("g", sent)
        oracle.leases.acked("g", sent)
        oracle.offsets.durable("g", queue, 1)
        await world.clock.sleep(1000.0)
        oracle.disk_damaged(damaged)
        await world.clock.sleep(1.0)
        oracle.disturbed(begun_again)
        oracle.leases.delivered(delivery, 1000)
        oracle.offsets.read("g", queue, -1, asked_at_s=oracle.now_s())
        oracle.offsets.began("g", queue, 0, opened_at_s=oracle.now_s())

    with world.running():
        world.loop.run_until_complete(world.loop.create_task(run(), context=world.loop.outside.context))
    return [one.promise for one in world.violations.all]


ALL = ["G8", "G10", "G10"]


@pytest.mark.parametrize(
    ("enode", "damaged", "begun_again", "promises"),
    [
        ("enode-0", "enode-0", "enode-0", []),
        ("enode-0", "enode-0", "enode-1", ALL),
        ("enode-0", "enode-1", "enode-1", ALL),
        (NOWHERE, "enode-1", "enode-1", []),
        (NOWHERE, "enode-1", "enode-0", ALL),
    ],
)
def test_what_a_damaged_frame_said_of_a_group_is_excused_once_it_was_read_again(
    enode: str, damaged: str, begun_again: str, promises: list[str]
) -> None:
    """While the process runs, everything is in memory. Where the enode is not named, as with RocketMQ, any counts."""
    assert found(Queue("t", enode, 0), damaged=damaged, begun_again=begun_again) == promises


NOT_NEEDED = (*range(7, 10), *range(12, 31))


def test_what_is_lost_with_a_disk_is_passed_over_in_order() -> None:
    """The next message of a message group comes before an unreadable one (seed 1057)."""
    assert run(RunOptions(1057, 25.3, without=NOT_NEEDED)).violations == ()


def test_what_can_be_read_is_not_passed_over_though_the_disk_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage excuses only its own losses: a lost order is found when the queues are read at the end (G5)."""
    see, begin = KeyOrder.add, Oracle.__init__

    def all_free(self: Any, first_offset: int, message_groups: Any, intervals: Any) -> list[int]:
        return see(self, first_offset, [None] * len(message_groups), intervals)

    def begun(self: Oracle, world: World) -> None:
        begin(self, world)
        self.damaged = {"enode-0": 0.0, "enode-1": 0.0}

    monkeypatch.setattr(KeyOrder, "add", all_free)
    monkeypatch.setattr(Oracle, "__init__", begun)
    outcome = run(RunOptions(2, 10.0, scenarios=("ordering",), faults=False))
    assert {one.promise for one in outcome.violations} == {"G5"}
    assert outcome.violations[0].time_s > 10.0

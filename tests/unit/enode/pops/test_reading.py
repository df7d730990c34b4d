"""Reading the messages of a pop from the disk, and the size of what the log records of them."""

from dataclasses import replace

import pytest

from ortoo.common.groups.pop import Finish
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.changes.pops import PopFinished, PopLeased
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, parts, play, texts

MESSAGES = 20


def changes_of(it: PopStore) -> list[StateChange]:
    """The changes that the log records from now on."""
    changes = list[StateChange]()
    it.store.engine.committer.on_applied.append(changes.append)
    return changes


def fetches(it: PopStore) -> int:
    """The number of reads of the store so far."""
    return it.store.describe().counters["fetches"]


@pytest.mark.parametrize("in_order", [False, True])
def test_the_batches_of_a_pop_are_read_together(in_order: bool) -> None:
    """A backlog may have one batch for each message, and each read of the disk takes a hop to a thread and back."""

    async def scenario(it: PopStore) -> None:
        it.rules = replace(it.rules, in_order=in_order)
        for number in range(MESSAGES):
            await it.send(str(number))
        await it.restart()  # nothing is in memory
        before, changes = fetches(it), changes_of(it)
        popped = await it.pop(MESSAGES - 1)
        segments = len(it.store.engine.catalog.segments)
        assert texts(popped) == [str(number) for number in range(MESSAGES - 1)]
        assert len(popped.batches) == MESSAGES - 1
        assert fetches(it) - before <= segments
        assert texts(await it.pop()) == [str(MESSAGES - 1)]
        await it.store.engine.appender.flush()
        leases = [one.rows for one in changes if isinstance(one, PopLeased)]
        assert leases == [((0, MESSAGES - 1, 1),), ((MESSAGES - 1, 1, 1),)]

    play(scenario)


@pytest.mark.parametrize("in_order", [False, True])
def test_the_batches_of_messages_that_are_delivered_again_are_read_together(in_order: bool) -> None:
    """Also if they became deliverable one by one."""

    async def scenario(it: PopStore) -> None:
        it.rules = replace(it.rules, in_order=in_order)
        for number in range(MESSAGES):
            await it.send(str(number))
        await it.pop()
        await it.restart()
        await it.one.clock.sleep(INVISIBLE_MS / 1000)
        before = fetches(it)
        assert texts(await it.pop()) == [str(number) for number in range(MESSAGES)]
        assert fetches(it) - before <= len(it.store.engine.catalog.segments)

    play(scenario)


def test_a_lease_has_a_row_for_messages_with_other_attempts() -> None:
    """Consecutive messages share a row only if they were delivered equally often."""

    async def scenario(it: PopStore) -> None:
        for number in range(4):
            await it.send(str(number))
        first = await it.pop(3)
        first.batches = [first.batches[0], first.batches[2]]
        await it.nack(first)
        changes = changes_of(it)
        popped = await it.pop()
        assert (texts(popped), list(attempts(popped))) == (["0", "2", "3"], [2, 2, 1])
        await it.store.engine.appender.flush()
        [lease] = [one for one in changes if isinstance(one, PopLeased)]
        assert lease.rows == ((0, 1, 2), (2, 1, 2), (3, 1, 1))

    play(scenario)


def test_acks_of_several_leases_of_a_queue_are_one_change() -> None:
    """A request has the acks of many consumers."""

    async def scenario(it: PopStore) -> None:
        for number in range(6):
            await it.send(str(number), queue_id=number % 2)
        popped = [await it.pop(1) for _ in range(6)]
        changes = changes_of(it)
        acks = [part for one in popped[:5] for part in parts(one)]
        assert await it.leasing.settle(TOPIC, GROUP, acks, Finish()) == []
        finished = [one for one in changes if isinstance(one, PopFinished)]
        assert sorted(one.queue_id for one in finished) == [0, 1]
        assert sum(count for one in finished for _, count in one.ranges) == 5

    play(scenario)

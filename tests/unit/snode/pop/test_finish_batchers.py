"""Acks of several consumers to one enode."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.groups.pop import LeasePart, LeaseVerdict, StaleMessage
from ortoo.common.process.background import Background
from ortoo.snode.pop.finish_batchers import FinishBatchers
from tests.unit.snode.fake_enode import FakeEnode

KEY = ("e", 77, "g")
GONE = NotFound("no such queue", field="queue_id")


class SlowEnode(FakeEnode):
    """Answers acks one after another, when the test lets it."""

    def __init__(self) -> None:
        """Start without requests."""
        super().__init__()
        self.requests: list[list[LeasePart]] = []
        self.came, self.go_on = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.is_older = False
        """Whether it does not report the numbers of leases."""

    async def settle(
        self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: LeaseVerdict
    ) -> list[StaleMessage]:
        """Record the request; every lease with number 9 is stale, and with number 99 there is none."""
        self.requests.append(list(parts))
        self.came.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        invalid = [StaleMessage(one.queue_id, one.ranges[0][0], 0 if self.is_older else one.number, GONE)
                   for one in parts if one.number == 99 or not one.is_valid]  # fmt: skip
        return invalid + [StaleMessage(part.queue_id, first, part.number) for part in parts if part.number == 9
                          for first, _ in part.ranges]  # fmt: skip


def part(number: int, offset: int) -> list[LeasePart]:
    """One message."""
    return [LeasePart(0, number, ((offset, 1),))]


async def finished_together(enode: SlowEnode, acks: Sequence[list[LeasePart]]) -> list[list[StaleMessage]]:
    """The outcome of each ack; all of them come while another request is under way."""
    async with asyncio.timeout(60), Background("test") as background:
        batchers = FinishBatchers(enode.links(), background)
        first = background.spawn("ack", batchers.finish(KEY, part(5, 0)))
        await enode.came.wait()
        others = [background.spawn("ack", batchers.finish(KEY, one)) for one in acks]
        enode.go_on.set()
        await first
        outcomes: list[list[StaleMessage]] = await asyncio.gather(*others)
        return outcomes


async def test_what_comes_while_a_request_is_under_way_makes_one_further_request() -> None:
    """Each consumer gets the stale leases, so that none takes another's refusal for its own."""
    enode = SlowEnode()
    async with asyncio.timeout(60), Background("test") as background:
        batchers = FinishBatchers(enode.links(), background)
        first = background.spawn("ack", batchers.finish(KEY, part(1, 0)))
        await enode.came.wait()
        others = [background.spawn("ack", batchers.finish(KEY, part(number, 5))) for number in (8, 9, 10)]
        gone = background.spawn("ack", batchers.finish(KEY, part(11, 6)))
        apart = background.spawn("ack", batchers.finish(("e", 78, "g"), part(1, 0)))
        enode.came.clear()
        await enode.came.wait()
        gone.cancel()
        enode.go_on.set()
        assert await first == await apart == []
        assert await asyncio.gather(*others) == [[StaleMessage(0, 5, 9)]] * 3
        numbers = [[one.number for one in request] for request in enode.requests]
    assert numbers == [[1], [1], [8, 9, 10, 11]]


async def test_a_failure_is_everybodys_and_the_next_request_is_a_new_one() -> None:
    """Acks are idempotent, so the callers retry."""
    enode = SlowEnode()
    enode.error = Unavailable("away")
    enode.go_on.set()
    async with asyncio.timeout(60), Background("test") as background:
        batchers = FinishBatchers(enode.links(), background)
        with pytest.raises(Unavailable):
            await batchers.finish(KEY, part(1, 0))
        enode.error = None
        assert await batchers.finish(KEY, part(1, 0)) == []


async def test_a_callback_that_raises_leaves_no_other_ack_without_an_answer() -> None:
    """Neither those of the same request nor later ones."""
    enode = SlowEnode()

    def defective(outcome: object) -> None:
        raise ValueError("a defect")

    async with asyncio.timeout(60), Background("test") as background:
        batchers = FinishBatchers(enode.links(), background)
        first = background.spawn("ack", batchers.finish(KEY, part(1, 0)))
        await enode.came.wait()
        batchers.put(KEY, part(2, 1), defective)
        answered = list[object]()
        batchers.put(KEY, part(3, 2), answered.append)
        enode.go_on.set()
        assert await first == []
        assert await batchers.finish(KEY, part(4, 3)) == []
        assert answered == [[]]


async def test_the_messages_of_a_lease_are_one_part_of_a_request() -> None:
    """A repeated ack is in it once. Parts that the enode settles differently stay apart."""
    enode = SlowEnode()
    strict = replace(part(1, 7)[0], unexpired_only=True)
    await finished_together(enode, [part(1, 3), part(2, 3), part(1, 2), part(1, 6), part(1, 3), [strict]])
    assert enode.requests[1] == [LeasePart(0, 1, ((2, 2), (6, 1))), *part(2, 3), strict]


async def test_an_error_about_a_lease_is_reported_for_each_of_its_acks() -> None:
    """The enode reports it once, with the first message of the lease; other leases are stale or settled."""
    enode = SlowEnode()
    found = await finished_together(enode, [part(99, 4), part(99, 3), part(9, 3), part(1, 3)])
    assert found == [[StaleMessage(0, 3, 9), StaleMessage(0, 4, 99, GONE), StaleMessage(0, 3, 99, GONE)]] * 4


@pytest.mark.parametrize("is_older", [False, True])
async def test_an_invalid_ack_fails_no_other_ack(is_older: bool) -> None:
    """Neither one of the same lease, nor one of the same queue if the enode does not report numbers of leases."""
    enode = SlowEnode()
    enode.is_older = is_older
    acks = [part(1, -1), part(1, 3), part(2, 4), part(99, 7), part(99, 8)]
    [found, *_] = await finished_together(enode, acks)
    assert [(one.offset, one.number) for one in found] == [(-1, 1), (7, 99), (8, 99)]
    assert all(one.error is GONE for one in found)

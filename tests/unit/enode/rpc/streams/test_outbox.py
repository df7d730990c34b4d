"""Answers are sent in order, and their memory is bounded."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ortoo.common.grpc.layers import call_memory
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.rpc.streams.queue_order import QueueOrder, Turn


async def taken(outbox: Outbox[str], count: int) -> list[str]:
    """Take the next answers, like the transport."""
    answers: AsyncIterator[str] = aiter(outbox)
    return [await anext(answers) for _ in range(count)]


async def test_reservations_are_granted_in_order_and_bounded() -> None:
    """A reservation that does not fit waits until answers are taken; a small one does not overtake a large one."""
    outbox = Outbox[str](bytes_max=100)
    granted: list[str] = []

    async def reserve(name: str, cost_bytes: int) -> None:
        await outbox.reserve(cost_bytes)
        granted.append(name)

    async with Background("test") as background:
        tasks = [background.spawn(n, reserve(n, c)) for n, c in (("a", 60), ("b", 50), ("c", 10))]
        await tasks[0]
        assert granted == ["a"]
        outbox.open_requests += 1
        outbox.put("a", 60)
        assert await taken(outbox, 1) == ["a"]
        await asyncio.gather(*tasks)
    assert granted == ["a", "b", "c"]


async def test_reservation_larger_than_the_bound_is_granted_alone() -> None:
    """One that can never fit beside others is granted when there are no others."""
    outbox = Outbox[str](bytes_max=100)
    await outbox.reserve(500)
    async with Background("test") as background:
        waiting = background.spawn("second", outbox.reserve(1))
        outbox.release(500)
        await waiting


async def test_cancelled_reservation_costs_nothing() -> None:
    """A cancelled waiter gives up its place, even at the moment when it was granted."""
    outbox = Outbox[str](bytes_max=100)
    await outbox.reserve(100)
    async with Background("test") as background:
        gone = background.spawn("gone", outbox.reserve(100))
        moment = background.spawn("moment", outbox.reserve(100))
        last = background.spawn("last", outbox.reserve(100))
        await asyncio.wait({gone}, timeout=0)
        gone.cancel()
        await asyncio.wait({gone})
        outbox.release(100)
        moment.cancel()
        await asyncio.wait({moment})
        await last


async def test_ends_when_every_open_request_is_answered() -> None:
    """After `end` open requests are still answered, unless they are abandoned. A failure is raised."""
    outbox = Outbox[str](bytes_max=100)
    outbox.open_requests = 2
    outbox.put("a", 0)
    outbox.end()
    outbox.put("b", 0)
    assert [answer async for answer in outbox] == ["a", "b"]
    outbox = Outbox[str](bytes_max=100)
    outbox.open_requests = 2
    outbox.put("a", 0)
    outbox.end(abandon_open=True)
    assert [answer async for answer in outbox] == ["a"]
    outbox = Outbox[str](bytes_max=100)
    outbox.fail(KeyError("x"))
    with pytest.raises(KeyError):
        assert [answer async for answer in outbox] == []


def test_queue_order_holds_back_what_is_not_due() -> None:
    """Within a queue answers leave in the order of the requests; other queues do not wait."""
    out: list[str] = []
    order = QueueOrder[str](lambda answer, cost_bytes: out.append(f"{answer}:{cost_bytes}"))
    first, second, third = (order.take_turn((1, 0), n) for n in (1, 2, 3))
    other: Turn[str] = order.take_turn((1, 1), 4)
    order.answer(third, "third")
    order.answer(second, "second")
    order.answer(other, "other")
    assert out == ["other:4"]
    order.answer(first, "first")
    assert out == ["other:4", "first:1", "second:2", "third:3"]


async def test_what_nobody_asked_for_is_offered_and_left_out_where_it_does_not_fit() -> None:
    """G17: a snode that reads no checks costs at most the memory of a stream, and gets further ones when it reads."""
    outbox = Outbox[str](bytes_max=100)
    assert [outbox.try_push(name, 60) for name in "ab"] == [True, False]
    assert outbox.open_requests == 1
    answers = aiter(outbox)
    assert await anext(answers) == "a"
    assert [outbox.try_push("c", 300), outbox.try_push("d", 1)] == [True, False]
    assert await anext(answers) == "c"
    outbox.end()
    assert [one async for one in answers] == []


async def test_what_is_offered_is_drawn_from_the_process() -> None:
    """G17: a message without free memory in the process is dropped, and costs nothing."""
    budget = MemoryBudget(10_000_000)
    share = budget.share("checks")
    token = call_memory._share.set(share)
    outbox = Outbox[str](bytes_max=20_000_000)
    call_memory._share.reset(token)
    before = budget.used_bytes
    assert outbox.try_push("a", 1_000_000)
    assert budget.used_bytes == before + 1_000_000
    assert not outbox.try_push("b", 15_000_000)
    answers = aiter(outbox)
    assert await anext(answers) == "a"
    assert budget.used_bytes == before
    outbox.end()
    assert [one async for one in answers] == []

"""G17: memory is bounded by the process's budget, for any behaviour of clients."""

import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.process.memory_budget import (
    CHECK_INTERVAL_S,
    EVICTION_GRACE_S,
    RESIDENT_PERCENT,
    SENDERS_PERCENT,
    SLOW_READER_S,
    MemoryBudget,
    MemoryShare,
)
from ortoo.verification.time.virtual_clock import VirtualClock

MIB = 1 << 20


def budget_of(size_bytes: int, clock: VirtualClock) -> MemoryBudget:
    """A budget of this size for clients that read."""
    budget = MemoryBudget(RESIDENT_PERCENT * 2, clock)
    budget.bytes_max = -(-size_bytes * 100 // (100 - SENDERS_PERCENT))
    return budget


async def test_what_is_asked_beyond_the_budget_is_refused_and_nothing_is_taken() -> None:
    """The refusal contains the requested, the used and the allowed number of bytes."""
    budget = budget_of(10 * MIB, VirtualClock())
    one, other = budget.share("push sessions"), budget.share("tails")
    one.draw(8 * MIB)
    with pytest.raises(Overloaded, match=f"{4 * MIB} bytes more.*{8 * MIB} of {10 * MIB} allowed"):
        other.draw(4 * MIB)
    assert budget.used_bytes == 8 * MIB
    assert budget.refused == {"tails": 1}
    one.close()
    other.draw(4 * MIB)
    assert budget.by_kind() == {("tails",): 4 * MIB}


async def test_those_who_do_not_read_give_way_the_largest_first() -> None:
    """Of owners that are behind the largest is evicted, then the one that waits longest; others stay."""
    clock = VirtualClock()
    budget, gone = budget_of(10 * MIB, clock), list[str]()

    def owner(name: str, size_bytes: int) -> MemoryShare:
        def end(reason: str) -> None:
            gone.append(name)
            share.close()

        share = budget.share("push sessions", end)
        share.draw(size_bytes)
        return share

    owner("small", 1 * MIB)
    owner("large", 4 * MIB)
    reader = owner("reader", 4 * MIB)
    clock.advance(SLOW_READER_S)
    reader.on_progress()
    budget.share("push sessions").draw(2 * MIB)
    assert gone == ["large", "small"]
    clock.advance(SLOW_READER_S / 2)
    asker = budget.share("push sessions")
    asker.draw(2 * MIB)
    with pytest.raises(Overloaded):
        asker.draw(8 * MIB)
    assert gone == ["large", "small"]


async def test_who_waits_for_others_is_not_behind() -> None:
    """Requested bytes that have not come yet, and fixed memory of an owner, are no reason to evict it."""
    clock = VirtualClock()
    budget, gone = budget_of(10 * MIB, clock), list[str]()
    waiting = budget.share("push sessions", gone.append)
    waiting.draw_fixed(MIB)
    held = waiting.reserve(8 * MIB)
    clock.advance(60.0)
    with pytest.raises(Overloaded):
        budget.share("tails").draw(2 * MIB)
    assert not gone
    held.resize(0)
    assert budget.used_bytes == MIB
    waiting.close()
    held.resize(5 * MIB)
    assert budget.used_bytes == 0, "bytes that a closed share frees later must not count"


async def test_who_sends_goes_on_beside_those_who_do_not_read() -> None:
    """A part of the budget is reserved for single requests, so that readers cannot fill it."""
    budget = budget_of(10 * MIB, VirtualClock())
    budget.share("Push").draw(10 * MIB)
    with pytest.raises(Overloaded):
        budget.share("Push").draw(MIB)
    budget.share("Publish").draw(MIB, is_request=True)


async def test_who_does_not_go_when_told_is_ended() -> None:
    """An evicted owner has a moment to end gracefully; after it a peer that does not respond is ended, once."""
    clock = VirtualClock()
    budget, said = budget_of(10 * MIB, clock), list[str]()
    deaf = budget.share("Push", lambda reason: said.append("told"))
    deaf.on_unresponsive = lambda: said.append("ended")
    deaf.draw(10 * MIB)
    for wait_s in (SLOW_READER_S, EVICTION_GRACE_S / 2, EVICTION_GRACE_S / 2, CHECK_INTERVAL_S):
        clock.advance(wait_s)
        with pytest.raises(Overloaded):
            budget.share("Push").draw(MIB)
    assert said == ["told", "ended"]

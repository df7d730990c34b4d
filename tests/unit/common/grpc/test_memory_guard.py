"""The decisions of the guard of the resident memory, step by step."""

from ortoo.common.grpc.limits.memory_guard import (
    CALM_INTERVAL_S,
    FREEING_S,
    FUTILE_INTERVAL_MAX_S,
    FUTILE_INTERVAL_S,
    REST_INTERVAL_S,
    SHRINK_INTERVAL_S,
    TENSE_INTERVAL_S,
    MemoryGuard,
    Step,
)
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.verification.time.virtual_clock import VirtualClock

MIB = 1 << 20
LIMIT = 1_000 * MIB


def guard_of(first_mib: int = 100) -> tuple[MemoryGuard, MemoryBudget]:
    """A guard of a process that was ready at second 0."""
    budget = MemoryBudget(300 * MIB, VirtualClock())
    budget.limit_bytes = LIMIT
    guard = MemoryGuard(budget)
    guard.start(first_mib * MIB, 0.0)
    return guard, budget


def test_a_calm_process_is_left_alone() -> None:
    """It is checked four times a second, and more often when it is large."""
    guard, _ = guard_of()
    assert guard.next_step(130 * MIB, 1_000.0) is Step.NOTHING
    assert guard.interval_s == CALM_INTERVAL_S
    guard.next_step(600 * MIB, 1.0)
    assert guard.interval_s == TENSE_INTERVAL_S


def test_memory_goes_back_when_a_flood_is_over() -> None:
    """Not while much of the budget is used, and less often after a return that freed little."""
    guard, budget = guard_of()
    share = budget.share("flood")
    share.draw_unchecked(budget.bytes_max // 2)
    assert guard.next_step(400 * MIB, REST_INTERVAL_S) is Step.NOTHING
    share.close()
    assert guard.next_step(400 * MIB, REST_INTERVAL_S - 1) is Step.NOTHING
    assert guard.next_step(400 * MIB, REST_INTERVAL_S) is Step.SHRINK
    guard.on_memory_returned(400 * MIB, 399 * MIB, REST_INTERVAL_S)
    assert guard.next_step(399 * MIB, 2 * REST_INTERVAL_S) is Step.NOTHING
    assert guard.next_step(399 * MIB, REST_INTERVAL_S + FUTILE_INTERVAL_S) is Step.SHRINK


def test_near_the_limit_connections_are_ended_if_nothing_else_helps() -> None:
    """First freed memory is returned, then the heaviest connections are closed step by step. No work is accepted."""
    guard, budget = guard_of()
    assert guard.next_step(700 * MIB, 10.0) is Step.SHRINK
    guard.on_memory_returned(700 * MIB, 690 * MIB, 10.0)
    assert guard.next_step(700 * MIB, 10.1) is Step.NOTHING
    assert guard.next_step(700 * MIB, 10.0 + SHRINK_INTERVAL_S) is Step.SHRINK
    guard.on_memory_returned(700 * MIB, 700 * MIB, 10.5)
    assert guard.next_step(850 * MIB, 10.6) is Step.END_CONNECTIONS
    assert budget.is_closed
    guard.on_memory_returned(850 * MIB, 840 * MIB, 10.7)
    assert guard.next_step(840 * MIB, 10.6 + FREEING_S / 2) is Step.SHRINK, (
        "memory of closed connections is being freed"
    )
    guard.on_memory_returned(840 * MIB, 840 * MIB, 10.8)
    assert guard.next_step(840 * MIB, 10.7 + FREEING_S) is Step.END_CONNECTIONS
    guard.on_memory_returned(840 * MIB, 300 * MIB, 11.1)
    assert guard.next_step(300 * MIB, 11.2) is Step.NOTHING
    assert not budget.is_closed


def test_a_process_that_jumps_to_its_limit_shrinks_first() -> None:
    """Resident memory may have been freed long ago."""
    guard, _ = guard_of()
    assert guard.next_step(900 * MIB, 50.0) is Step.SHRINK
    guard.on_memory_returned(900 * MIB, 895 * MIB, 50.0)
    assert guard.next_step(895 * MIB, 50.1) is Step.END_CONNECTIONS


def returns_until(guard: MemoryGuard, resident_mib: int, from_s: float, to_s: float) -> list[float]:
    """The times at which a process of this size returns memory, if no return frees any."""
    found: list[float] = []
    for now_s in range(int(from_s), int(to_s)):
        if guard.next_step(resident_mib * MIB, now_s) is Step.SHRINK:
            guard.on_memory_returned(resident_mib * MIB, resident_mib * MIB, now_s)
            found.append(now_s)
    return found


def test_returns_that_free_nothing_become_rare() -> None:
    """Thousands of clients need their memory for hours, and each return stops the process for a moment."""
    guard, budget = guard_of()
    budget.share("polls").draw_unchecked(20 * MIB)
    found = returns_until(guard, 300, 0, 3 * 3_600)
    assert found[0] == REST_INTERVAL_S
    assert found[-1] - found[-2] == FUTILE_INTERVAL_MAX_S
    assert len(found) <= 3 * 3_600 / FUTILE_INTERVAL_MAX_S + 6


def test_memory_goes_back_soon_after_a_flood_of_a_process_of_rare_returns() -> None:
    """Whether the flood is known by the memory that it used, or only by the growth of the process."""
    guard, budget = guard_of()
    returns_until(guard, 300, 0, 3_600)
    share = budget.share("flood")
    share.draw_unchecked(30 * MIB)
    assert not returns_until(guard, 310, 3_600, 3_610)
    share.close()
    assert returns_until(guard, 310, 3_610, 3_610 + int(FUTILE_INTERVAL_S) + 1)
    returns_until(guard, 310, 3_660, 7_200)
    assert returns_until(guard, 370, 7_200, 7_200 + int(FUTILE_INTERVAL_S) + 1)


def test_returns_near_the_limit_make_no_later_return_rare() -> None:
    """They follow each other at once, so they say little about the memory that is free a minute later."""
    guard, _ = guard_of()
    now_s = 100.0
    for _ in range(20):
        assert guard.next_step(700 * MIB, now_s) is Step.SHRINK
        guard.on_memory_returned(700 * MIB, 700 * MIB, now_s)
        now_s += SHRINK_INTERVAL_S
    assert returns_until(guard, 640, now_s, now_s + FUTILE_INTERVAL_S + 1)

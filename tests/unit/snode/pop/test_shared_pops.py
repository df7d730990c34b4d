"""When idle pops end: several of them together, but never so many that they hold up other calls."""

from collections import Counter

import pytest

from ortoo.snode.pop.shared_pops import ENDS_AT_ONCE_MAX, end_s


@pytest.mark.parametrize(("wait_ms", "late_s"), [(1, 1 / 16), (5_000, 1 / 16), (10_000, 1 / 4), (20_000, 1 / 4)])
@pytest.mark.parametrize("waiting", [1, 3_000])
def test_a_pop_ends_after_its_wait_and_soon(wait_ms: int, late_s: float, waiting: int) -> None:
    """Wherever it begins."""
    ends: Counter[float] = Counter()
    for step in range(1_000):
        now_s = 1_000.0 + step / 997
        end = end_s(now_s, wait_ms, waiting, ends)
        ends[end] += 1
        assert 0.0 <= end - now_s - wait_ms / 1000 <= late_s


@pytest.mark.parametrize("wait_ms", [1_000, 9_000, 20_000])
@pytest.mark.parametrize("waiting", [10, 300, 3_000, 30_000])
def test_many_pops_end_together_but_not_too_many(wait_ms: int, waiting: int) -> None:
    """Pops that begin at even intervals end in groups."""
    ends: Counter[float] = Counter()
    for number in range(waiting):
        ends[end_s(wait_ms * number / waiting / 1000, wait_ms, waiting, ends)] += 1
    assert max(ends.values()) <= ENDS_AT_ONCE_MAX
    if waiting >= 3_000:
        assert waiting / len(ends) >= ENDS_AT_ONCE_MAX / 2.5


@pytest.mark.parametrize("wait_ms", [9_000, 20_000])
@pytest.mark.parametrize(("arriving", "seconds"), [(1_000, 0.2), (4_000, 1.0), (100_000, 20.0)])
def test_pops_that_began_together_do_not_all_end_together(wait_ms: int, arriving: int, seconds: float) -> None:
    """After a restart all clients connect at once, while few pops wait."""
    ends: Counter[float] = Counter()
    for number in range(arriving):
        ends[end_s(seconds * number / arriving, wait_ms, number + 1, ends)] += 1
    assert max(ends.values()) <= ENDS_AT_ONCE_MAX * 1.2


@pytest.mark.parametrize("wait_ms", [0, -1])
def test_a_pop_without_a_wait_ends_now(wait_ms: int) -> None:
    """A time in the past is now."""
    assert 999.0 < end_s(1_000.0, wait_ms, 10, {}) <= 1_000.0


def test_the_ends_of_pops_of_different_lengths_coincide() -> None:
    """Also when a crowd has more of them than few pops have."""
    few, short, crowd = (
        {end_s(step / 100, *of, {}) for step in range(400)} for of in ((20_000, 1), (9_000, 1), (20_000, 9_000))
    )
    assert {one % 1 for one in few} <= {one % 1 for one in short} <= {one % 1 for one in crowd}

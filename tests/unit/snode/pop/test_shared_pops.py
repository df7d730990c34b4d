"""When idle pops end: several of them together, up to a number that does not hold up other calls."""

from collections import Counter

import pytest

from ortoo.snode.pop.shared_pops import ENDS_AT_ONCE_MAX, end_s


def ends_of(pops: int, wait_ms: int, *, within_s: float) -> Counter[float]:
    """The number of pops that end at each time, if they begin at even intervals within a time."""
    ends: Counter[float] = Counter()
    for number in range(pops):
        ends[end_s(within_s * number / pops, wait_ms, ends)] += 1
    return ends


@pytest.mark.parametrize(("wait_ms", "late_s"), [(1, 1 / 16), (5_000, 1 / 16), (10_000, 1 / 4), (20_000, 1 / 4)])
def test_a_pop_ends_after_its_wait_and_soon(wait_ms: int, late_s: float) -> None:
    """Wherever it begins."""
    ends: Counter[float] = Counter()
    for step in range(1_000):
        now_s = 1_000.0 + step / 997
        end = end_s(now_s, wait_ms, ends)
        ends[end] += 1
        assert 0.0 <= end - now_s - wait_ms / 1000 <= late_s


@pytest.mark.parametrize("wait_ms", [1_000, 9_000, 20_000])
@pytest.mark.parametrize("waiting", [10, 300, 3_000, 30_000])
def test_many_pops_end_together_but_not_too_many(wait_ms: int, waiting: int) -> None:
    """Also if they begin at even intervals."""
    ends = ends_of(waiting, wait_ms, within_s=wait_ms / 1000)
    assert max(ends.values()) <= ENDS_AT_ONCE_MAX * 2
    if waiting >= 3_000:
        assert waiting / len(ends) >= ENDS_AT_ONCE_MAX / 5


@pytest.mark.parametrize("wait_ms", [9_000, 20_000])
@pytest.mark.parametrize(("arriving", "seconds"), [(1_000, 0.2), (4_000, 1.0), (100_000, 20.0)])
def test_pops_that_began_together_do_not_all_end_together(wait_ms: int, arriving: int, seconds: float) -> None:
    """After a restart all clients connect at once."""
    assert max(ends_of(arriving, wait_ms, within_s=seconds).values()) <= ENDS_AT_ONCE_MAX * 2.5


@pytest.mark.parametrize("wait_ms", [0, -1])
def test_a_pop_without_a_wait_ends_now(wait_ms: int) -> None:
    """A time in the past is now."""
    assert 999.0 < end_s(1_000.0, wait_ms, {}) <= 1_000.0


def test_the_ends_of_pops_of_different_lengths_coincide() -> None:
    """The times of long pops are among those of short ones."""
    long, short = ({end_s(step / 100, wait_ms, {}) % 1 for step in range(400)} for wait_ms in (20_000, 9_000))
    assert long <= short

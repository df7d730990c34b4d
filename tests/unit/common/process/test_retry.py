"""Delays between attempts double, stay within their bounds and are random."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff


@given(st.integers(0, 1000), st.integers())
def test_delay_stays_within_its_bounds(attempt: int, seed: int) -> None:
    """No delay leaves the spread around its place in the schedule."""
    backoff = Backoff(first_s=0.1, max_s=3.0, jitter=0.25)
    plain = min(3.0, 0.1 * 2 ** min(attempt, 64))
    assert plain * 0.75 <= backoff.delay_s(attempt, Randomness(seed)) <= plain * 1.25


def test_one_seed_gives_one_schedule() -> None:
    """A run can be replayed from its seed."""
    first, second = Randomness(7), Randomness(7)
    assert [Backoff().delay_s(n, first) for n in range(9)] == [Backoff().delay_s(n, second) for n in range(9)]

"""The calculations of the benchmarks: percentiles, growth, bodies."""

import pytest

from bench.memory import slope
from bench.percentiles import latency_figures, percentile
from bench.workload import Bodies, BodyPool, fingerprint


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank: no value is made up between two."""
    durations = [float(number) for number in range(1, 101)]
    assert [percentile(durations, share) for share in (0.5, 0.99, 0.999, 1.0)] == [50.0, 99.0, 100.0, 100.0]
    assert latency_figures([0.004, 0.002])["max_ms"] == 4.0


def test_growth_is_the_slope_of_the_best_line() -> None:
    """Steady memory has none, whatever its level; a leak has its own."""
    assert slope([(0.0, 7.0), (60.0, 7.0), (120.0, 7.0)]) == 0.0
    assert slope([(0.0, 5.0), (60.0, 65.0), (120.0, 125.0)]) == pytest.approx(1.0)


def test_bodies_are_distinct_and_in_order_as_bytes() -> None:
    """A consumer sees a body that is lost, twice there, changed or out of turn."""
    bodies = Bodies(64)
    first, second = bodies.take(5000), bodies.take(5000)
    both = first + second
    assert sorted(both) == both
    assert len(set(both)) == 10_000
    assert {len(body) for body in both} == {64}
    changed = [*first[:-1], first[-1][:-1] + bytes((first[-1][-1] ^ 1,))]
    assert fingerprint(first) != fingerprint(changed)
    assert (fingerprint(first) + fingerprint(second)) % (1 << 64) == fingerprint(both[::-1])


def test_a_pool_gives_each_body_before_it_repeats_one() -> None:
    """Whatever the numbers that are taken. A list has a body twice only if it is longer than the pool."""
    pool = BodyPool(Bodies(64), 100)
    taken = [body for count in (1, 60, 150, 89) for body in pool.take(count)]
    assert len(set(taken[:100])) == 100
    assert taken == taken[:100] * 3

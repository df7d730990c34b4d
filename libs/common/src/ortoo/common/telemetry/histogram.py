"""Counts of observed values in buckets, such as latencies, so that single values need not be kept.

Every call is observed. The histogram of `prometheus_client` needs ten times as long for a value: it takes locks, and
searches the bucket bound by bound. `python -m bench.telemetry` compares the two.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 200.0, 400.0, 600.0, 800.0, 1e3, 2e3, 5e3, 7e3, 1e4)
"""Upper bounds of buckets for calls, in milliseconds; RocketMQ's, so that its dashboards can be used."""
DELAY_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of buckets for delays inside a process, in seconds."""


class Histogram:
    """The number of values up to each bound, their total number, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_MS) -> None:
        """Begin without values; `bounds` are ascending."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.counts)

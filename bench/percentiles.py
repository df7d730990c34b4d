"""Percentiles of measured durations."""

from collections.abc import Sequence


def percentile(durations: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the sorted `durations` do not exceed; the nearest-rank rule."""
    if not durations:
        return float("nan")
    rank = max(0, min(len(durations) - 1, -(-int(share * len(durations) * 1_000_000) // 1_000_000) - 1))
    return sorted(durations)[rank]


def latency_figures(durations_s: Sequence[float]) -> dict[str, float]:
    """p50, p99, p99.9 and the largest, in milliseconds."""
    ordered = sorted(durations_s)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    return {name: round(percentile(ordered, share) * 1000, 3) for name, share in shares.items()}

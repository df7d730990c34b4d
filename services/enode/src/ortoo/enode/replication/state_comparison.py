"""Comparisons of the replicas' states."""

from dataclasses import dataclass


@dataclass(slots=True)
class StateComparison:
    """State mismatches between this replica and the leader, over all openings of its log."""

    mismatches: int = 0
    """The number of consecutive mismatches."""
    last_compared: int = 0
    """The number of the last compared digests, so that folding again does not compare them again."""

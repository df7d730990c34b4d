"""The recorded lag of a group on one enode."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LagSamples:
    """The recorded lag of a group in some topics on one enode, at most an hour, in the order of the times."""

    sampled_at_ms: Sequence[int]
    lag_messages: Sequence[int]
    retention_left_ms: Sequence[int]
    """-1 = not known, or retention does not reach the messages."""
    is_partial: bool
    """Whether the enode has too many series, and does not record all of them."""
    interval_ms: int

"""The recorded lags of a group on one enode."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicLagSamples:
    """The samples of one topic, in the order of the times."""

    topic_id: int
    lag_messages: Sequence[int]
    retention_left_ms: Sequence[int]
    """-1 = not known, or retention does not reach the messages."""


@dataclass(frozen=True, slots=True)
class LagSamples:
    """The recorded lags of a group on one enode, at most an hour. A topic that is missing had no lag."""

    sampled_at_ms: Sequence[int]
    topics: Sequence[TopicLagSamples]
    is_partial: bool
    """Whether the enode has too many series, and does not record all of them."""
    interval_ms: int

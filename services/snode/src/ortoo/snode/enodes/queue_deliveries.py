"""The delivery states of a queue's messages in a group, as its enode reports them."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

DONE = 4
"""The phase of messages that the group has finished; the values are those of the protobuf enum."""


@dataclass(frozen=True, slots=True)
class DeliveryRange:
    """Consecutive messages in the same state."""

    first_offset: int
    count: int
    phase: int
    attempt: int
    until_ms: int
    """When the lease ends or the next delivery is due, milliseconds since 1970-01-01 UTC."""
    consumer: str
    error: str


@dataclass(frozen=True, slots=True)
class QueueDeliveries:
    """The states of the messages from an offset on."""

    ranges: Sequence[DeliveryRange]
    """By offset, without gaps."""
    committed_offset: int
    """-1 = none."""
    begin_offset: int
    end_offset: int
    """The end of the queue."""
    uses_pop: bool

    @property
    def described_end(self) -> int:
        """The offset after the last described message."""
        return self.ranges[-1].first_offset + self.ranges[-1].count if self.ranges else 0

    def unfinished(self, offset: int) -> DeliveryRange | None:
        """The state of one described message; None if the group has finished it."""
        found = self.ranges[bisect_right(self.ranges, offset, key=lambda one: one.first_offset) - 1]
        return replace(found, first_offset=offset, count=1) if found.phase != DONE else None

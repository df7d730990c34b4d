"""When to stop pulling: pure rules over what a consumer holds of a queue and has not processed.

The limits are checked before a pull, so a queue may hold one pull more than its limit.
"""

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

MIB = 1 << 20
LOG_EVERY = 1000


class Hold(Enum):
    """Why a queue is not pulled now."""

    MESSAGES = "too many messages wait to be processed"
    BYTES = "too many bytes wait to be processed"
    SPAN = "one message is not processed while many behind it are"


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one queue."""

    messages: int
    size_bytes: int
    span: int
    """The newest offset that was pulled minus the oldest one that is not processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """What may be held of one queue; more than this holds the next pull back."""

    messages_max: int = 1_000
    bytes_max: int = 100 * MIB
    """Compared in whole MiB."""
    span_max: int | None = 2_000
    """How far processing may spread; None where messages are processed in order."""
    topic_messages_max: int | None = None
    """What may be held of a whole topic, instead of the limit for one queue; spread evenly over the queues owned."""
    topic_bytes_max: int | None = None

    def spread(self, queue_count: int) -> Self:
        """The limits of one queue when so many of the topic are owned."""
        queue_count = max(1, queue_count)
        messages, size = self.messages_max, self.bytes_max
        if self.topic_messages_max is not None:
            messages = max(1, self.topic_messages_max // queue_count)
        if self.topic_bytes_max is not None:
            size = max(MIB, self.topic_bytes_max // queue_count)
        return replace(self, messages_max=messages, bytes_max=size)

    def hold(self, held: Held) -> Hold | None:
        """Why not to pull now; None when there is room."""
        if held.messages > self.messages_max:
            return Hold.MESSAGES
        if held.size_bytes // MIB > self.bytes_max // MIB:
            return Hold.BYTES
        if self.span_max is not None and held.span > self.span_max:
            return Hold.SPAN
        return None


class HoldCounts(Counter[Hold]):
    """How often each limit held a consumer back, so that its log tells of one time in a thousand."""

    def count(self, hold: Hold) -> bool:
        """Count one; whether it is worth a line in the log."""
        self[hold] += 1
        return self[hold] % LOG_EVERY == 1

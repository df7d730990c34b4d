"""Flow control of pulls, by the unprocessed messages of a queue; without I/O.

The limits are checked before a pull, so a queue may exceed its limit by the messages of one pull.
"""

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

MIB = 1 << 20
LOG_EVERY = 1000


class FlowControlReason(Enum):
    """The reason why a queue is not pulled now."""

    MESSAGES = "too many messages wait to be processed"
    BYTES = "too many bytes wait to be processed"
    SPAN = "one message is not processed while many behind it are"


@dataclass(frozen=True, slots=True)
class BufferedMessages:
    """The unprocessed messages of one queue."""

    messages: int
    size_bytes: int
    span: int
    """The newest pulled offset minus the oldest unprocessed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Limits for the unprocessed messages of one queue. The queue is not pulled while it exceeds a limit."""

    messages_max: int = 1_000
    bytes_max: int = 100 * MIB
    """Maximum number of bytes, compared in whole MiB."""
    span_max: int | None = 2_000
    """Largest distance between the newest pulled and the oldest unprocessed offset; None in ordered processing."""
    topic_messages_max: int | None = None
    """Limits for a whole topic, divided evenly among its assigned queues; they replace those for one queue."""
    topic_bytes_max: int | None = None

    def per_queue(self, queue_count: int) -> Self:
        """The limits of one queue when `queue_count` queues of the topic are assigned."""
        queue_count = max(1, queue_count)
        messages, size = self.messages_max, self.bytes_max
        if self.topic_messages_max is not None:
            messages = max(1, self.topic_messages_max // queue_count)
        if self.topic_bytes_max is not None:
            size = max(MIB, self.topic_bytes_max // queue_count)
        return replace(self, messages_max=messages, bytes_max=size)

    def exceeded(self, buffered: BufferedMessages) -> FlowControlReason | None:
        """The limit that `buffered` exceeds, so that the queue is not pulled; None = the queue may be pulled."""
        if buffered.messages > self.messages_max:
            return FlowControlReason.MESSAGES
        if buffered.size_bytes // MIB > self.bytes_max // MIB:
            return FlowControlReason.BYTES
        if self.span_max is not None and buffered.span > self.span_max:
            return FlowControlReason.SPAN
        return None


class FlowControlCounts(Counter[FlowControlReason]):
    """Counts the pulls that each limit stopped; one of LOG_EVERY stopped pulls is logged."""

    def count(self, reason: FlowControlReason) -> bool:
        """Count one stopped pull; returns whether to log it."""
        self[reason] += 1
        return self[reason] % LOG_EVERY == 1

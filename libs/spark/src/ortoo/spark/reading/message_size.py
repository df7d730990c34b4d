"""How large messages are, guessed from a few: for limits in bytes, where servers only know numbers of messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.client import Queue
from ortoo.spark.core.link import Link

SAMPLES_MAX = 4
_UNKNOWN_BYTES = 1_024.0


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The bytes of some messages."""

    count: int = 0
    size_bytes: int = 0

    def messages(self, bytes_max: int) -> int:
        """How many messages fit."""
        return int(bytes_max / (self.size_bytes / self.count if self.count else _UNKNOWN_BYTES))

    def sampled(self, link: Link, starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> "MessageSize":
        """The size of the messages at the beginning of the longest ranges; this one when nothing is waiting."""
        waiting = sorted((queue for queue in ends if ends[queue] > starts[queue]), key=lambda q: starts[q] - ends[q])
        count = size_bytes = 0
        for queue in waiting[:SAMPLES_MAX]:
            for received in link.fetch(queue, starts[queue], starts[queue] + 1):
                count += received.sealed.count
                size_bytes += received.size_bytes
        return MessageSize(count, size_bytes) if count else self

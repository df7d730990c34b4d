"""How much of what is new one streaming batch takes: a limit divided over queues, one in bytes by a guess of sizes."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.client import OrtooError, Queue
from ortoo.spark.core.link import Link

SAMPLES_MAX = 4
_UNKNOWN_BYTES = 1_024.0


def limited(start: Mapping[Queue, int], latest: Mapping[Queue, int], messages_max: int) -> dict[Queue, int]:
    """End offsets so that all queues together give at most `messages_max` messages.

    Each queue gets its part in proportion to what waits in it, a queue where something waits at least one message while
    there are enough to give, the rest goes to the largest fractions. The sum is exact.
    """
    waiting = {queue: max(end - start.get(queue, end), 0) for queue, end in sorted(latest.items())}
    total = sum(waiting.values())
    if total <= messages_max:
        return dict(latest)
    filled = [queue for queue, count in waiting.items() if count]
    ends = {queue: latest[queue] - waiting[queue] for queue in latest}
    if messages_max <= len(filled):
        # Too few for one each: the longest lines first, so that none waits for ever.
        for queue in sorted(filled, key=lambda q: (-waiting[q], q))[:messages_max]:
            ends[queue] += 1
        return ends
    rest = messages_max - len(filled)
    shares = {queue: rest * (waiting[queue] - 1) / max(total - len(filled), 1) for queue in filled}
    given = {queue: 1 + int(shares[queue]) for queue in filled}
    for queue in sorted(filled, key=lambda q: (int(shares[q]) - shares[q], q)):
        if sum(given.values()) >= messages_max:
            break
        if given[queue] < waiting[queue]:
            given[queue] += 1
    for queue, count in given.items():
        ends[queue] += count
    return ends


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The bytes of some messages, by which those of others are guessed: servers only know numbers of messages."""

    count: int = 0
    size_bytes: int = 0

    @property
    def mean_bytes(self) -> float:
        """The mean size of a message."""
        return self.size_bytes / self.count if self.count else _UNKNOWN_BYTES

    def sampled(self, link: Link, starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> "MessageSize":
        """The size of the messages at the beginning of the longest ranges; this one when nothing is waiting."""
        waiting = sorted((queue for queue in ends if ends[queue] > starts[queue]), key=lambda q: starts[q] - ends[q])
        count = size_bytes = 0
        for queue in waiting[:SAMPLES_MAX]:
            # It is a guess: where nothing can be read any more, the read itself says so.
            with contextlib.suppress(OrtooError):
                for received in link.fetch(queue, starts[queue], starts[queue] + 1):
                    count += received.sealed.count
                    size_bytes += received.size_bytes
        return MessageSize(count, size_bytes) if count else self

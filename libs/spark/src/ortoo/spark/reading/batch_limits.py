"""The size of a streaming batch: divides a limit over queues. A byte limit uses estimated message sizes."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.client import OrtooError, Queue
from ortoo.spark.core.link import ClusterLink

SAMPLES_MAX = 4
_UNKNOWN_BYTES = 1_024.0


def limit_offsets(start: Mapping[Queue, int], latest: Mapping[Queue, int], messages_max: int) -> dict[Queue, int]:
    """End offsets between `start` and `latest`, with at most `messages_max` messages in all queues together.

    The limit is divided in proportion to the waiting messages of each queue. If the limit allows, each queue with
    waiting messages gets at least one. Messages left over by rounding go to the queues with the largest fractions.
    """
    waiting = {queue: max(end - start.get(queue, end), 0) for queue, end in sorted(latest.items())}
    total = sum(waiting.values())
    if total <= messages_max:
        return dict(latest)
    filled = [queue for queue, count in waiting.items() if count]
    ends = {queue: latest[queue] - waiting[queue] for queue in latest}
    if messages_max <= len(filled):
        # The limit is smaller than the number of queues: the longest ones get one message each, so that none starves.
        for queue in sorted(filled, key=lambda q: (-waiting[q], q))[:messages_max]:
            ends[queue] += 1
        return ends
    rest = messages_max - len(filled)
    proportions = {queue: rest * (waiting[queue] - 1) / max(total - len(filled), 1) for queue in filled}
    assigned = {queue: 1 + int(proportions[queue]) for queue in filled}
    for queue in sorted(filled, key=lambda q: (int(proportions[q]) - proportions[q], q)):
        if sum(assigned.values()) >= messages_max:
            break
        if assigned[queue] < waiting[queue]:
            assigned[queue] += 1
    for queue, count in assigned.items():
        ends[queue] += count
    return ends


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The size of some sampled messages, to estimate the mean size, because servers report only numbers of messages."""

    count: int = 0
    size_bytes: int = 0

    @property
    def mean_bytes(self) -> float:
        """The mean size of a message."""
        return self.size_bytes / self.count if self.count else _UNKNOWN_BYTES

    def sampled(self, link: ClusterLink, starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> "MessageSize":
        """Sample messages between `starts` and `ends`, in the queues with the most messages there.

        Returns this object if no message could be sampled.
        """
        waiting = sorted((queue for queue in ends if ends[queue] > starts[queue]), key=lambda q: starts[q] - ends[q])
        count = size_bytes = 0
        for queue in waiting[:SAMPLES_MAX]:
            # An estimate only: errors are reported by the read itself.
            with contextlib.suppress(OrtooError):
                for received in link.fetch(queue, starts[queue], starts[queue] + 1):
                    count += received.sealed.count
                    size_bytes += received.size_bytes
        return MessageSize(count, size_bytes) if count else self

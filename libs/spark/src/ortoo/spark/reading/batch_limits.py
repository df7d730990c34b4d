"""The size of a streaming batch: divides a limit over queues. Without I/O; enodes measure the bytes of their queues."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ortoo.client import Queue

if TYPE_CHECKING:
    from ortoo.client.offsets.offset_lookup import QueueSize


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


Measure = Callable[[Mapping[Queue, tuple[int, int]]], Mapping[Queue, "QueueSize"]]
"""Returns the stored bytes of queues, each from (first offset, maximum of bytes), without queues that have no answer.

A size is that of whole stored batches: at least one, even if it is larger than the maximum.
"""


@dataclass(slots=True)
class BytesLimit:
    """Limits the stored bytes of a batch of a stream: `bytes_max` in all queues together, or else one message.

    A producer's batch that is larger than the share of its queue is divided by the mean size of its messages.
    """

    bytes_max: int
    measure: Measure
    mean_bytes: float = 1_024.0
    """The mean size of the messages that were measured last."""
    _turn: int = 0
    """Rotates the queues, so that none starves if the limit allows only some of them."""

    def limit(self, start: Mapping[Queue, int], latest: Mapping[Queue, int]) -> dict[Queue, int]:
        """End offsets between `start` and `latest`; a queue that was not measured stays at its start.

        The limit is divided in proportion to the waiting bytes of each queue, up to the limit itself.
        """
        shares = {queue: (start[queue], self.bytes_max) for queue, end in latest.items() if end > start[queue]}
        sizes = self.measure(shares)
        total_bytes = sum(size.size_bytes for size in sizes.values())
        if total_bytes > self.bytes_max:
            shares = {
                queue: (start[queue], self.bytes_max * size.size_bytes // total_bytes) for queue, size in sizes.items()
            }
            sizes = {queue: _divided(size, *shares[queue]) for queue, size in self.measure(shares).items()}
        ends = {queue: min(start[queue], end) for queue, end in latest.items()}
        left_bytes, messages, taken_bytes = self.bytes_max, 0, 0
        self._turn += 1
        ordered = sorted(sizes)
        at = self._turn % max(len(ordered), 1)
        for queue in ordered[at:] + ordered[:at]:
            size = sizes[queue]
            if taken_bytes and size.size_bytes > left_bytes:
                continue
            ends[queue] = min(size.end_offset, latest[queue])
            left_bytes, taken_bytes = left_bytes - size.size_bytes, taken_bytes + size.size_bytes
            messages += size.end_offset - start[queue]
        if messages:
            self.mean_bytes = taken_bytes / messages
        return ends


def _divided(size: "QueueSize", first_offset: int, bytes_max: int) -> "QueueSize":
    """The part of `size` that fits `bytes_max`, by the mean size of the messages; at least one message."""
    if size.size_bytes <= bytes_max or size.end_offset <= first_offset:
        return size
    messages = size.end_offset - first_offset
    taken = max(messages * bytes_max // size.size_bytes, 1)
    return replace(size, end_offset=first_offset + taken, size_bytes=size.size_bytes * taken // messages)

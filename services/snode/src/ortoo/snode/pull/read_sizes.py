"""Sizes of requests to enodes, so that all reads together stay within bounds."""

from collections.abc import Iterable

from ortoo.common.records.message import Message
from ortoo.snode.enodes.link import FETCH_BYTES_MAX

TAIL_BYTES = 256 << 10
"""Bytes that a tail with few queues requests of each queue at once."""
TAIL_QUEUES_BYTES, TAIL_BYTES_MIN = 8 << 20, 16 << 10
"""Bytes that a tail requests of all its queues together, and the minimum for each queue. A batch is never split."""
RANGE_BYTES_MAX = 4 << 20
"""Bytes that a read of a range requests at once. Smaller requests would cost as much as the batches in the answer."""
ANSWER_BYTES_MAX = 4 << 20
"""Approximate bytes of an answer with single messages; a larger message is returned alone."""
MESSAGE_FIXED_BYTES = 512
"""Overhead of a message in an answer: its queue, offset, times, id."""
RANGES_BYTES = 64 << 20
"""Bytes that all reads of ranges may request together; many reads use smaller requests."""


def range_bytes(ranges: int) -> int:
    """The size of the next request of each read, in bytes, if `ranges` ranges are read at once.

    A read may hold two answers: one in use and one being loaded.
    """
    return max(FETCH_BYTES_MAX, min(RANGE_BYTES_MAX, RANGES_BYTES // (2 * ranges)))


def count_fitting(messages: Iterable[Message]) -> int:
    """The number of messages at the beginning of `messages` that fit into one answer; at least 1."""
    left_bytes, count = ANSWER_BYTES_MAX, 0
    for message in messages:
        texts = (*message.keys, *message.properties, *message.properties.values())
        # The body may be included as text as well.
        left_bytes -= MESSAGE_FIXED_BYTES + 2 * len(message.body) + sum(map(len, texts))
        if count and left_bytes < 0:
            break
        count += 1
    return count


def tail_bytes(queues: int) -> int:
    """The size of each request of a tail over `queues` queues, in bytes."""
    return max(TAIL_BYTES_MIN, min(TAIL_BYTES, TAIL_QUEUES_BYTES // max(1, queues)))

"""How much one read asks an enode for, so that all reads together stay within bounds. Pure."""

from collections.abc import Iterable

from ortoo.common.records.message import Message
from ortoo.snode.enodes.link import FETCH_BYTES_MAX

TAIL_BYTES = 256 << 10
"""What a tail reads of one queue at once, if it has few."""
TAIL_QUEUES_BYTES, TAIL_BYTES_MIN = 8 << 20, 16 << 10
"""What a tail asks for of all its queues together, and at least of each; a batch comes whole all the same."""
RANGE_BYTES_MAX = 4 << 20
"""What a read of a range asks an enode for at once: with only a batch or two a request costs as much as they do."""
ANSWER_BYTES_MAX = 4 << 20
"""What one answer with single messages holds, about; one that is larger by itself comes alone."""
MESSAGE_FIXED_BYTES = 512
"""What stands around a message: its place, times, id."""
RANGES_BYTES = 64 << 20
"""What all reads of ranges may ask for together; with many of them each asks for less, and oftener."""


def range_bytes(ranges: int) -> int:
    """What one of so many reads of ranges asks for next: each holds an answer while the following one is coming."""
    return max(FETCH_BYTES_MAX, min(RANGE_BYTES_MAX, RANGES_BYTES // (2 * ranges)))


def fitting(messages: Iterable[Message]) -> int:
    """How many of these, from the first, fit into one answer; one at least."""
    left_bytes, count = ANSWER_BYTES_MAX, 0
    for message in messages:
        texts = (*message.keys, *message.properties, *message.properties.values())
        # The body may be told as text as well.
        left_bytes -= MESSAGE_FIXED_BYTES + 2 * len(message.body) + sum(map(len, texts))
        if count and left_bytes < 0:
            break
        count += 1
    return count


def tail_bytes(queues: int) -> int:
    """What a tail of so many queues reads of each at once."""
    return max(TAIL_BYTES_MIN, min(TAIL_BYTES, TAIL_QUEUES_BYTES // max(1, queues)))

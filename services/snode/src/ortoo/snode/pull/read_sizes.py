"""How much one read asks an enode for, so that all reads together stay within bounds. Pure."""

from ortoo.snode.enodes.link import FETCH_BYTES_MAX

TAIL_BYTES = 256 << 10
"""What a tail reads of one queue at once, if it has few."""
TAIL_QUEUES_BYTES, TAIL_BYTES_MIN = 8 << 20, 16 << 10
"""What a tail asks for of all its queues together, and at least of each; a batch comes whole all the same."""
RANGE_BYTES_MAX = 4 << 20
"""What a read of a range asks an enode for at once: with only a batch or two a request costs as much as they do."""
RANGES_BYTES = 64 << 20
"""What all reads of ranges may ask for together; with many of them each asks for less, and oftener."""


def range_bytes(ranges: int) -> int:
    """What one of so many reads of ranges asks for next: each holds an answer while the following one is coming."""
    return max(FETCH_BYTES_MAX, min(RANGE_BYTES_MAX, RANGES_BYTES // (2 * ranges)))


def tail_bytes(queues: int) -> int:
    """What a tail of so many queues reads of each at once."""
    return max(TAIL_BYTES_MIN, min(TAIL_BYTES, TAIL_QUEUES_BYTES // max(1, queues)))

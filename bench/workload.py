"""Bodies to send: equal sizes, different contents, nothing a compressor could use."""

import os
import struct
from itertools import cycle, islice

_NUMBER = struct.Struct(">q")
_PATTERNS = 4096


class Bodies:
    """An endless supply of distinct bodies: a counter, then random bytes.

    The counter is big-endian, so the bytes of bodies sort in the order of their numbers.
    """

    def __init__(self, body_bytes: int, seed: bytes | None = None) -> None:
        """Bodies of `body_bytes` (at least 16) bytes each."""
        tail_bytes = body_bytes - _NUMBER.size
        noise = (seed or os.urandom(1 << 16)) * (1 + (tail_bytes + 16 * _PATTERNS) // (1 << 16))
        self._tails = [noise[16 * at : 16 * at + tail_bytes] for at in range(_PATTERNS)]
        self._count = 0

    def take(self, count: int) -> list[bytes]:
        """The next `count` bodies."""
        first, self._count = self._count, self._count + count
        pack, tails = _NUMBER.pack, self._tails
        return [pack(number) + tails[number % _PATTERNS] for number in range(first, first + count)]


class BodyPool:
    """Distinct bodies that are made once and taken in turn, so that a load does not include their making."""

    def __init__(self, bodies: Bodies, size: int) -> None:
        """Hold the next `size` of `bodies`."""
        self._turn = cycle(bodies.take(size))

    def take(self, count: int) -> list[bytes]:
        """The next `count` bodies; the first one follows the last one."""
        return list(islice(self._turn, count))


def fingerprint(bodies: list[bytes]) -> int:
    """A sum of 64-bit content hashes that does not depend on order; comparable within one process."""
    return sum(map(hash, bodies)) & (1 << 64) - 1

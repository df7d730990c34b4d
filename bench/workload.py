"""Bodies to send: equal sizes, different contents, nothing a compressor could use."""

import os
import struct
from hashlib import blake2b


class Bodies:
    """An endless supply of distinct bodies: a counter, then random bytes out of one large block."""

    def __init__(self, body_bytes: int, seed: bytes | None = None) -> None:
        """Bodies of `body_bytes` (at least 16) bytes each."""
        self._tail_bytes = body_bytes - 8
        self._noise = (seed or os.urandom(64)) * (1 + (body_bytes + 8192) // 64)
        self._count = 0

    def take(self, count: int) -> list[bytes]:
        """The next `count` bodies."""
        first, self._count = self._count, self._count + count
        noise, tail, pack = self._noise, self._tail_bytes, struct.Struct("<q").pack
        return [pack(number) + noise[number % 4096 : number % 4096 + tail] for number in range(first, first + count)]


def number_of(body: bytes) -> int:
    """The counter of a body made by `Bodies`."""
    return int.from_bytes(body[:8], "little")


def fingerprint(bodies: list[bytes]) -> int:
    """A sum of content hashes that does not depend on order."""
    return sum(int.from_bytes(blake2b(body, digest_size=8).digest(), "little") for body in bodies) & (1 << 64) - 1

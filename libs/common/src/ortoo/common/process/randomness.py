"""Randomness as an argument, so that a seed can replay a run."""

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from contextvars import ContextVar


class Randomness:
    """The only source of randomness. Without a seed, the operating system's randomness is used."""

    def __init__(self, seed: int | None = None) -> None:
        """Start from `seed`, or from the operating system's entropy."""
        self._random = random.SystemRandom() if seed is None else random.Random(seed)

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._random.uniform(low, high)

    def below(self, limit: int) -> int:
        """An integer from 0 to `limit`, exclusive."""
        return self._random.randrange(limit)

    def id64(self) -> int:
        """A 64-bit id that is not 0, because 0 means "none" on the wire and on disk."""
        return self._random.randrange(1, 1 << 64)

    def key_bytes(self) -> bytes:
        """A key for HMACs, 32 bytes; unpredictable unless there is a seed."""
        return self._random.getrandbits(256).to_bytes(32, "little")

    def id_text(self) -> str:
        """A short id for people and logs, 16 hex digits."""
        return f"{self.id64():016x}"

    def uuid_text(self) -> str:
        """A random UUID as text, 36 characters."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


_streams: ContextVar[Callable[[], Randomness]] = ContextVar("randomness")


def current_randomness() -> Randomness:
    """The default randomness: the operating system's, unless the task's context has another one."""
    return _streams.get(Randomness)()


@contextlib.contextmanager
def using_randomness(streams: Callable[[], Randomness]) -> Iterator[None]:
    """Make `current_randomness` return the results of `streams` in the block, and in tasks that it spawns."""
    token = _streams.set(streams)
    try:
        yield
    finally:
        _streams.reset(token)

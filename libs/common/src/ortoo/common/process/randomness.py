"""Chance as an argument, so that one seed replays a run."""

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from contextvars import ContextVar


class Randomness:
    """The only source of chance. Without a seed the operating system's is used."""

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
        """A key for HMACs, 32 bytes; without a seed nobody guesses it."""
        return self._random.getrandbits(256).to_bytes(32, "little")

    def id_text(self) -> str:
        """A short id for people and logs, 16 hex digits."""
        return f"{self.id64():016x}"

    def uuid_text(self) -> str:
        """A random UUID as text, 36 characters."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


_streams: ContextVar[Callable[[], Randomness]] = ContextVar("randomness")


def current_randomness() -> Randomness:
    """Chance for whoever was given none: the operating system's, unless the task's context says otherwise."""
    return _streams.get(Randomness)()


@contextlib.contextmanager
def using_randomness(streams: Callable[[], Randomness]) -> Iterator[None]:
    """Let `current_randomness` be what `streams` gives in the block, and in tasks that it spawns."""
    token = _streams.set(streams)
    try:
        yield
    finally:
        _streams.reset(token)

"""Ends the long streams of clients at an age, so that clients connect again and added snodes get load."""

import contextlib
from collections.abc import Callable, Iterator

from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness

AFTER_CONNECTION, SPREAD = 1.15, 0.2
"""A stream ends at this multiple of the age, plus a random part of the spread. Before that, at 0.9 to 1.1 of the age,
gRPC announces the end of its connection. The next stream then uses another connection."""


class StreamAges:
    """The open streams, by the time at which each of them ends."""

    def __init__(self, age_max_s: float, clock: Clock, randomness: Randomness) -> None:
        """With `age_max_s` 0 no stream ends because of its age."""
        self._age_max_s = age_max_s
        self._clock = clock
        self._randomness = randomness
        self._due_s: dict[Callable[[], None], float] = {}

    @property
    def interval_s(self) -> float:
        """The interval of `end_due`."""
        return min(5.0, self._age_max_s / 20) or 5.0

    @contextlib.contextmanager
    def track(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` once if the block lasts longer than the age; it must end the stream gracefully, without errors."""
        if not self._age_max_s:
            yield
            return
        age_s = self._age_max_s * (AFTER_CONNECTION + self._randomness.uniform(0, SPREAD))
        self._due_s[end] = self._clock.monotonic_s() + age_s
        try:
            yield
        finally:
            self._due_s.pop(end, None)

    async def end_due(self) -> None:
        """End the streams that have reached their age; called every `interval_s`."""
        now_s = self._clock.monotonic_s()
        for end in [end for end, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[end]
            end()

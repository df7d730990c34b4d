"""A machine's clock: the run's virtual time, changed by the machine's drift and by clock jumps."""

import asyncio

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop

EPOCH_MS = 1_800_000_000_000
"""The wall-clock time at the begin of a run."""
LATE_USUALLY_S = 0.001
"""The usual maximum delay of a timer."""
LATE_SELDOM_S = 0.05
"""The maximum delay when the machine is busy."""
SELDOM = 0.01


class RunClock(SystemClock):
    """The run's own time, for observers."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Follow `loop`."""
        self._loop = loop

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, as exact clocks show them."""
        return round(EPOCH_MS + self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        """Virtual seconds since the run began."""
        return self._loop.time()


class MachineClock(SystemClock):
    """A `Clock` with drift, jumps and late sleepers, as the seed decides."""

    def __init__(self, loop: VirtualLoop, chance: Randomness) -> None:
        """Begin without drift, and with the run's own time on the wall clock."""
        self._loop = loop
        self._chance = chance
        self._drift = 0.0
        self._monotonic_at_s = 0.0
        self._loop_at_s = 0.0
        self._wall_offset_ms = 0.0

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, on this machine's clock."""
        return round(EPOCH_MS + self.monotonic_s() * 1000 + self._wall_offset_ms)

    def monotonic_s(self) -> float:
        """Seconds since the run began, on this machine's monotonic clock."""
        return self._monotonic_at_s + (self._loop.time() - self._loop_at_s) * (1.0 + self._drift)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` on this machine's clock, and a moment longer."""
        if seconds <= 0:
            await super().sleep(0)
            return
        over = self._loop.create_future()
        timer = self._loop.call_later(seconds / (1.0 + self._drift) + self._late_s(), _end, over)
        try:
            await over
        finally:
            timer.cancel()

    def jump(self, by_ms: float) -> None:
        """Step the wall clock by `by_ms`, as an operator or a time server does."""
        self._wall_offset_ms += by_ms

    def drift(self, parts: float) -> None:
        """Set the drift in seconds a second; negative values are slower."""
        self._monotonic_at_s, self._loop_at_s = self.monotonic_s(), self._loop.time()
        self._drift = parts

    @property
    def wall_error_ms(self) -> float:
        """The difference of the wall clock to the run's own time; positive when ahead."""
        return self.now_ms() - EPOCH_MS - self._loop.time() * 1000

    def _late_s(self) -> float:
        drawn = self._chance.uniform(0.0, 1.0)
        if drawn < SELDOM:
            return drawn / SELDOM * LATE_SELDOM_S
        return drawn * LATE_USUALLY_S


def _end(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)

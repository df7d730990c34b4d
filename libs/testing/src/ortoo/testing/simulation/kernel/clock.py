"""A machine's clock: the run's virtual time, as this machine's quartz and its operator let it see it."""

import asyncio

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop

EPOCH_MS = 1_800_000_000_000
"""What the wall clocks show when a run begins."""
LATE_USUALLY_S = 0.001
"""How late a timer fires at most, most of the time."""
LATE_SELDOM_S = 0.05
"""How late it fires at most when the machine is busy."""
SELDOM = 0.01


class RunClock(SystemClock):
    """The run's own time, for those who watch it."""

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
    """A `Clock` that drifts and jumps, and whose sleepers wake a little late, as the seed says."""

    def __init__(self, loop: VirtualLoop, chance: Randomness) -> None:
        """Begin exact: no drift, and the wall clock shows the run's own time."""
        self._loop = loop
        self._chance = chance
        self._drift = 0.0
        self._monotonic_at_s = 0.0
        self._loop_at_s = 0.0
        self._wall_offset_ms = 0.0

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, as this machine believes."""
        return round(EPOCH_MS + self.monotonic_s() * 1000 + self._wall_offset_ms)

    def monotonic_s(self) -> float:
        """Seconds since the run began, as this machine's quartz counts them."""
        return self._monotonic_at_s + (self._loop.time() - self._loop_at_s) * (1.0 + self._drift)

    async def sleep(self, seconds: float) -> None:
        """Wait for so many of this machine's seconds, and a moment longer."""
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
        """Let an operator or a time server set the wall clock, forth or back."""
        self._wall_offset_ms += by_ms

    def drift(self, parts: float) -> None:
        """From now on the quartz is faster by this part of a second each second, or slower when it is negative."""
        self._monotonic_at_s, self._loop_at_s = self.monotonic_s(), self._loop.time()
        self._drift = parts

    @property
    def wall_error_ms(self) -> float:
        """How far the wall clock is ahead of the run's own time."""
        return self.now_ms() - EPOCH_MS - self._loop.time() * 1000

    def _late_s(self) -> float:
        drawn = self._chance.uniform(0.0, 1.0)
        if drawn < SELDOM:
            return drawn / SELDOM * LATE_SELDOM_S
        return drawn * LATE_USUALLY_S


def _end(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)

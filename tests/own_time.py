"""Time without stalls of the machine, for tests that limit a wait."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock

TICK_S = 0.01


@dataclass(slots=True)
class OwnTime:
    """Grows by one tick at a time while the event loop runs, so that a stall of any length is one tick."""

    seconds: float = 0.0

    async def run(self) -> None:
        """Count until cancelled."""
        clock = SystemClock()
        while True:
            await clock.sleep(TICK_S)
            self.seconds += TICK_S


@contextlib.asynccontextmanager
async def own_time() -> AsyncIterator[OwnTime]:
    """Count the time of the block."""
    async with Background("own time") as background:
        counted = OwnTime()
        background.spawn("count", counted.run())
        yield counted

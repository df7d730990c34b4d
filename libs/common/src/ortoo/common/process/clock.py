"""Time as an argument: production passes `SystemClock`, tests a virtual one."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where a component gets its time from. Every other source of time is forbidden by lint."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC; may jump, so never measure with it."""

    def monotonic_s(self) -> float:
        """Seconds that only go forward; the zero is arbitrary."""

    async def sleep(self, seconds: float) -> None:
        """Wait for so many monotonic seconds."""


class SystemClock:
    """The machine's own time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)

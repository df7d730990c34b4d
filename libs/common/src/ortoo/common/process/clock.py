"""Time as an argument: production passes `SystemClock`, tests a virtual one."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol


class Clock(Protocol):
    """The source of time of a component. Lint forbids all other sources of time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC; may jump, so never measure durations with it."""

    def monotonic_s(self) -> float:
        """Seconds that only go forward, also while the machine sleeps; the zero is arbitrary."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this number of monotonic seconds."""


def suspend_aware_clock_id(system: Any = time) -> Callable[[], float]:
    """The monotonic clock that also counts while the machine sleeps; if there is none, the usual monotonic clock.

    A lease granted before a machine slept must have expired when it wakes, because time has passed for other machines.
    """
    try:
        number = system.CLOCK_BOOTTIME
        system.clock_gettime(number)
    except (AttributeError, OSError):
        return system.monotonic  # type: ignore[no-any-return]
    return partial(system.clock_gettime, number)


_CLOCK_ID = suspend_aware_clock_id()


class SystemClock:
    """The machine's own time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since the machine was started, also while it sleeps."""
        return _CLOCK_ID()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


_clock: ContextVar[Clock] = ContextVar("clock")


def current_clock() -> Clock:
    """The default clock: the machine's, unless the task's context has another one."""
    return _clock.get(None) or SystemClock()


@contextlib.contextmanager
def using_clock(clock: Clock) -> Iterator[None]:
    """Make `current_clock` return `clock` in the block, and in tasks that it spawns."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)

"""Time as an argument: production passes `SystemClock`, tests a virtual one."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol


class Clock(Protocol):
    """Where a component gets its time from. Every other source of time is forbidden by lint."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC; may jump, so never measure with it."""

    def monotonic_s(self) -> float:
        """Seconds that only go forward, also while the machine sleeps; the zero is arbitrary."""

    async def sleep(self, seconds: float) -> None:
        """Wait for so many monotonic seconds."""


def going_on(system: Any = time) -> Callable[[], float]:
    """The clock of a system that goes on while the machine sleeps; one that stands still then if there is no other.

    A lease that was given before a machine slept is over when it wakes, for to others that time has passed.
    """
    try:
        number = system.CLOCK_BOOTTIME
        system.clock_gettime(number)
    except (AttributeError, OSError):
        return system.monotonic  # type: ignore[no-any-return]
    return partial(system.clock_gettime, number)


_going_on = going_on()


class SystemClock:
    """The machine's own time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since the machine was started."""
        return _going_on()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


_clock: ContextVar[Clock] = ContextVar("clock")


def current_clock() -> Clock:
    """The clock for whoever was given none: the machine's, unless the task's context says otherwise."""
    return _clock.get(None) or SystemClock()


@contextlib.contextmanager
def using_clock(clock: Clock) -> Iterator[None]:
    """Let `current_clock` be `clock` in the block, and in tasks that it spawns."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)

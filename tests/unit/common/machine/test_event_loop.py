"""Timers of the roles' event loop are accurate."""

import asyncio

from ortoo.common.machine.event_loop import RoleLoop
from ortoo.common.process.clock import SystemClock

SLEEPS = 50


async def sleeps() -> int:
    """The number of sleeps of a task that waits until several times, none of them a whole number of milliseconds."""
    count, clock = 0, SystemClock()
    for number in range(SLEEPS):
        until_s = clock.monotonic_s() + 0.0021 + number * 0.00001
        while (left_s := until_s - clock.monotonic_s()) > 0:
            await clock.sleep(left_s)
            count += 1
    return count


def test_who_waits_until_a_time_sleeps_once() -> None:
    """If timers are early, the task sleeps repeatedly: thirty times with libuv's own rounding."""
    with asyncio.Runner(loop_factory=RoleLoop) as runner:
        assert runner.run(sleeps()) <= 2 * SLEEPS


async def shortest(delay_s: float) -> float:
    """The shortest of some sleeps while other work keeps the loop busy, so that it checks its timers continuously."""
    took_s: list[float] = []
    clock, loop = SystemClock(), asyncio.get_running_loop()

    def be_busy() -> None:
        if len(took_s) < SLEEPS:
            loop.call_soon(be_busy)

    be_busy()
    for _ in range(SLEEPS):
        begun_s = clock.monotonic_s()
        await clock.sleep(delay_s)
        took_s.append(clock.monotonic_s() - begun_s)
    return min(took_s)


def test_a_sleep_is_never_too_short() -> None:
    """Libuv takes whole milliseconds, and rounding to the nearest would make some sleeps too short."""
    with asyncio.Runner(loop_factory=RoleLoop) as runner:
        assert runner.run(shortest(0.0024)) >= 0.0024

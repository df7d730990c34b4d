"""The event loop of roles keeps time."""

import asyncio

from ortoo.common.machine.event_loop import RoleLoop
from ortoo.common.process.clock import SystemClock

SLEEPS = 50


async def sleeps() -> int:
    """How often one sleeps who waits until each of so many times, none of which is a whole number of milliseconds."""
    count, clock = 0, SystemClock()
    for number in range(SLEEPS):
        until_s = clock.monotonic_s() + 0.0021 + number * 0.00001
        while (left_s := until_s - clock.monotonic_s()) > 0:
            await clock.sleep(left_s)
            count += 1
    return count


def test_who_waits_until_a_time_sleeps_once() -> None:
    """A loop whose timers are early has it sleep again and again: thirty times where libuv counts for itself."""
    with asyncio.Runner(loop_factory=RoleLoop) as runner:
        assert runner.run(sleeps()) <= 2 * SLEEPS


async def shortest(delay_s: float) -> float:
    """The shortest of some sleeps beside what keeps the loop busy, so that it looks at its timers all the time."""
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
    """Libuv is given whole milliseconds: the nearest ones would be too few for what lies in between."""
    with asyncio.Runner(loop_factory=RoleLoop) as runner:
        assert runner.run(shortest(0.0024)) >= 0.0024

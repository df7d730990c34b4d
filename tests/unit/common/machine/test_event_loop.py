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

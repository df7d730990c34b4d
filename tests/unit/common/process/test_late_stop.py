"""A stop that does not end reports why."""

import asyncio

from structlog.testing import capture_logs

from ortoo.common.process.background import Background
from ortoo.common.process.containment import waiting_place
from ortoo.common.process.service import LATE_STOP_S, log_late_stop
from ortoo.verification.time.virtual_clock import VirtualClock


async def test_a_stop_that_takes_long_names_who_is_still_there_and_where() -> None:
    """Nothing is logged before the time; then each task, down to the innermost function that waits."""
    clock, stopping = VirtualClock(), asyncio.Event()

    async def hang() -> None:
        await stuck()

    async def stuck() -> None:
        await asyncio.Event().wait()

    async with Background("owner") as background:
        background.spawn("hangs", hang())
        background.spawn("late", log_late_stop(stopping, clock))
        stopping.set()
        while not clock.sleeping:
            await clock.sleep(0)
        with capture_logs() as logged:
            await clock.pass_time(LATE_STOP_S - 1)
            assert not logged
            await clock.pass_time(1)
    assert [(one["event"], one["since_s"]) for one in logged] == [("shutdown_slow", LATE_STOP_S)]
    place = logged[0]["waiting"]["owner:hangs"]
    assert [part.rpartition(".")[2].partition(":")[0] for part in place.split(" > ")] == ["hang", "stuck", "wait"]


async def test_the_place_of_a_task_that_ended_is_nowhere() -> None:
    """It does not delay the stop."""

    async def nothing() -> None:
        pass

    async with Background("owner") as background:
        task = background.spawn("ends", nothing())
        await task
    assert waiting_place(task) == ""

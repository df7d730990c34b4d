"""Says what a stop waits for when it takes long, so that a hang can be understood from the log it leaves."""

import asyncio
from collections.abc import Iterator
from typing import Any

from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger

LATE_S = 10.0
"""A stop that lasts so long is told of, and again after each such time. It is twice what calls are given to end."""
TASKS_MAX = 50
_log = get_logger("service")


async def tell_of_late_stop(stopping: asyncio.Event, clock: Clock) -> None:
    """From the moment that `stopping` is set: log every LATE_S which tasks are there still, and where they wait."""
    await stopping.wait()
    began_s = clock.monotonic_s()
    while True:
        await clock.sleep(LATE_S)
        waiting = {task.get_name(): place_of(task) for task in asyncio.all_tasks() - {asyncio.current_task()}}
        _log.error(
            "the stop takes long",
            since_s=round(clock.monotonic_s() - began_s),
            tasks=len(waiting),
            waiting=dict(sorted(waiting.items())[:TASKS_MAX]),
        )


def place_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits: its functions and their lines, from the outermost to what is awaited."""
    return " > ".join(_frames(task.get_coro()))


def _frames(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)

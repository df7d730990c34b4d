"""Waiting for what a thread does."""

import asyncio
import gc
from typing import Any

from ortoo.common.process.background import Background
from ortoo.common.process.threads import uninterrupted


async def cancelled_work_that_fails() -> None:
    """A caller is cancelled, and waits for work that fails then."""
    loop = asyncio.get_running_loop()
    running: asyncio.Future[None] = loop.create_future()
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await uninterrupted(running)

    async with Background("test") as background:
        caller = background.spawn("caller", waits())
        await begun.wait()
        caller.cancel()
        loop.call_later(0.01, running.set_exception, OSError("its disk"))
        await asyncio.wait({caller})
        assert caller.cancelled()


async def test_work_that_fails_for_a_caller_who_is_cancelled_leaves_no_error_behind() -> None:
    """Nobody else can hear of it; the simulation found it with seed 345 and three members."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
    await cancelled_work_that_fails()
    gc.collect()
    assert told == []

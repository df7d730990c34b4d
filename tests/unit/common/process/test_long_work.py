"""Waiting for the work of a thread."""

import asyncio
import gc
from typing import Any

from ortoo.common.process.background import Background
from ortoo.common.process.long_work import wait_uncancelled


async def cancelled_work_that_fails() -> None:
    """A caller is cancelled, and waits for work that then fails."""
    loop = asyncio.get_running_loop()
    running: asyncio.Future[None] = loop.create_future()
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await wait_uncancelled(running)

    async with Background("test") as background:
        caller = background.spawn("caller", waits())
        await begun.wait()
        caller.cancel()
        loop.call_later(0.01, running.set_exception, OSError("its disk"))
        await asyncio.wait({caller})
        assert caller.cancelled()


async def test_work_that_fails_for_a_caller_who_is_cancelled_leaves_no_error_behind() -> None:
    """No other code could report the failure; the simulation found this with three replicas."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
    await cancelled_work_that_fails()
    gc.collect()
    assert told == []


async def test_who_is_cancelled_several_times_waits_for_the_thread() -> None:
    """A slow stop cancels repeatedly; the work still continues."""
    loop = asyncio.get_running_loop()
    running: asyncio.Future[int] = loop.create_future()
    had: list[int] = []

    async def waits() -> None:
        had.append(await wait_uncancelled(running))
        await loop.create_future()

    async with Background("test") as background:
        caller = background.spawn("caller", waits())
        await asyncio.wait({caller}, timeout=0)
        for _ in range(3):
            caller.cancel()
            await asyncio.wait({caller}, timeout=0)
        assert not caller.done()
        running.set_result(7)
        await asyncio.wait({caller})
    assert caller.cancelled()
    assert had == []

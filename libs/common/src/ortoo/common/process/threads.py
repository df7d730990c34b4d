"""Work in threads, which nobody can call off."""

import asyncio
import contextlib
from typing import TypeVar

T = TypeVar("T")


async def uninterrupted(running: "asyncio.Future[T]") -> T:
    """What a thread's work brings. A cancelled caller still waits for it: nothing runs behind anybody's back."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        if not running.cancelled():
            running.exception()  # nobody else looks at it
        raise


async def completed(running: "asyncio.Future[T]") -> T:
    """The same, where it counts for who is cancelled too: it has it, and is cancelled again at its next wait."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return running.result()


async def _ended(running: "asyncio.Future[T]") -> None:
    """Wait for it, however often the caller is cancelled meanwhile."""
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((running,))

"""Work in threads, which nobody can call off."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def uninterrupted(running: "asyncio.Future[T]") -> T:
    """What a thread's work brings. A cancelled caller still waits for it: nothing runs behind anybody's back."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        if not running.cancelled():
            running.exception()  # nobody else looks at it
        raise

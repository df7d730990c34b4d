"""Waiting for work in threads, which cannot be cancelled."""

import asyncio
import contextlib
from typing import TypeVar

T = TypeVar("T")


async def wait_uncancelled(running: "asyncio.Future[T]") -> T:
    """The result of a thread's work. A cancelled caller still waits for it, so that no work is left running."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _wait_until_done(running)
        if not running.cancelled():
            running.exception()  # read it, or asyncio would warn
        raise


async def _wait_until_done(running: "asyncio.Future[T]") -> None:
    """Wait until `running` is done, even if the caller is cancelled repeatedly meanwhile."""
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((running,))

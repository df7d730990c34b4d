"""Long work: in threads, which cannot be cancelled, or in slices between which the event loop serves calls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from ortoo.common.process.clock import Clock

T = TypeVar("T")
SLICE_ITEMS: Final = 250
"""Maximum number of items in one slice. One item, such as a series of a metric, is 1 to 10 µs of work."""


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


def slices(items: Iterable[T]) -> Iterator[list[T]]:
    """Cut items into lists of at most SLICE_ITEMS."""
    remaining = iter(items)
    while part := list(islice(remaining, SLICE_ITEMS)):
        yield part


async def in_slices(items: Iterable[T], clock: Clock) -> AsyncIterator[list[T]]:
    """Cut items into lists of at most SLICE_ITEMS, and let the event loop do other work after each.

    The state may change after each slice, so `items` must not iterate over a changing collection.
    """
    for part in slices(items):
        yield part
        await clock.sleep(0)

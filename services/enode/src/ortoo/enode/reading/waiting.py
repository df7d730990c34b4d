"""Waiting readers: woken by events or by a timeout."""

import asyncio
from collections.abc import MutableSequence
from functools import partial

from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import Clock
from ortoo.common.process.deadlines import DeadlineWheel

WaitLine = MutableSequence[asyncio.Future[None]]
"""The waiters for one event, in the order of their arrival."""


class Waiters:
    """All waiters of one kind in a store; each waits in one line."""

    def __init__(self, clock: Clock, *, waiters_max: int, plural: str) -> None:
        """Allow at most `waiters_max` waiters at once; `plural` is the name of such waiters in error messages."""
        self.wheel = DeadlineWheel(clock, f"store:waiting {plural}")
        self.is_closed = False
        self._waiters_max = waiters_max
        self._what = plural
        self._all: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """The number of waiters."""
        return len(self._all)

    async def wait_in(self, wait_line: WaitLine, until_s: float, waiter: asyncio.Future[None] | None = None) -> None:
        """Wait in a line until woken, until the monotonic time `until_s`, or until `close` is called.

        A caller that wakes this waiter directly passes its own `waiter`.
        A waiter that is woken and cancelled at the same moment wakes the next waiter in its line.
        Errors: Overloaded if too many callers wait.
        """
        if self.is_closed:
            return
        if len(self._all) >= self._waiters_max:
            raise Overloaded(f"{len(self._all)} {self._what} wait already on this enode", retry_after_ms=1000)
        if waiter is None:
            waiter = asyncio.get_running_loop().create_future()
        wait_line.append(waiter)
        self._all.add(waiter)
        deadline = self.wheel.add(until_s, partial(wake, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                wake_first(wait_line)
            raise
        finally:
            self._all.discard(waiter)
            self.wheel.cancel(deadline)
            if waiter in wait_line:
                wait_line.remove(waiter)

    async def close(self) -> None:
        """Wake all waiters; later ones return at once."""
        self.is_closed = True
        for waiter in self._all:
            wake(waiter)
        await self.wheel.close()


def wake_first(wait_line: WaitLine) -> None:
    """Wake the first waiter of a line."""
    while wait_line:
        waiter = wait_line[0]
        del wait_line[0]
        if wake(waiter):
            return


def wake_all(wait_line: WaitLine) -> None:
    """Wake all waiters of a line."""
    waiters = list(wait_line)
    wait_line.clear()
    for waiter in waiters:
        wake(waiter)


def wake(waiter: asyncio.Future[None]) -> bool:
    """Wake a waiter; False if it was already woken or cancelled."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True

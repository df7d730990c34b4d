"""Those who wait for messages: woken by what happens, or by the time."""

import asyncio
from collections.abc import MutableSequence
from functools import partial

from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import Clock
from ortoo.common.process.deadlines import DeadlineWheel

Line = MutableSequence[asyncio.Future[None]]
"""Who waits for the same, in the order in which they came."""


class Waiters:
    """All of one sort who wait in a store, each in a line."""

    def __init__(self, clock: Clock, *, waiters_max: int, what: str) -> None:
        """At most `waiters_max` wait at once; `what` they are, in the plural, for errors."""
        self.wheel = DeadlineWheel(clock, f"store:waiting {what}")
        self.is_closed = False
        self._waiters_max = waiters_max
        self._what = what
        self._all: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._all)

    async def wait_in(self, line: Line, until_s: float, waiter: asyncio.Future[None] | None = None) -> None:
        """Return when woken, at a monotonic time, or when this is closed. Errors: Overloaded if too many wait already.

        `waiter` is for whoever wants to wake this one by itself.
        One that is woken and cancelled at the same moment wakes the next one in its line.
        """
        if self.is_closed:
            return
        if len(self._all) >= self._waiters_max:
            raise Overloaded(f"{len(self._all)} {self._what} wait already on this enode", retry_after_ms=1000)
        if waiter is None:
            waiter = asyncio.get_running_loop().create_future()
        line.append(waiter)
        self._all.add(waiter)
        deadline = self.wheel.add(until_s, partial(let_go, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                wake_first(line)
            raise
        finally:
            self._all.discard(waiter)
            self.wheel.cancel(deadline)
            if waiter in line:
                line.remove(waiter)

    async def close(self) -> None:
        """Let everybody go; nobody waits any more."""
        self.is_closed = True
        for waiter in self._all:
            let_go(waiter)
        await self.wheel.close()


def wake_first(line: Line) -> None:
    """Something may be there for one of a line."""
    while line:
        waiter = line[0]
        del line[0]
        if let_go(waiter):
            return


def wake_all(line: Line) -> None:
    """What all of a line wait for is there."""
    waiters = list(line)
    line.clear()
    for waiter in waiters:
        let_go(waiter)


def let_go(waiter: asyncio.Future[None]) -> bool:
    """Wake this one; False when somebody did already, or it was cancelled."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True

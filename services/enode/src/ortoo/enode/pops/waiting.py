"""Pops that wait for a message: woken one after another, by what arrives, returns or becomes free."""

import asyncio
from collections import deque
from functools import partial

from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import Clock
from ortoo.enode.pops.alarms import Alarm, Alarms

WAITERS_MAX = 100_000
"""How many pops may wait at once in one enode."""


class WaitingRoom:
    """The waiting pops of one group in one topic, in the order in which they came."""

    def __init__(self, clock: Clock, alarms: Alarms, hall: "Hall") -> None:
        """Take seats in `hall`, which all rooms share."""
        self._clock = clock
        self._alarms = alarms
        self._hall = hall
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._alarm: Alarm | None = None
        self._alarm_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def wait(self, until_s: float) -> None:
        """Return when woken, or at a monotonic time. Errors: Overloaded when too many wait already."""
        if self._hall.waiting >= WAITERS_MAX:
            raise Overloaded(f"{self._hall.waiting} pops wait already on this enode", retry_after_ms=1000)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._hall.waiting += 1
        deadline = self._alarms.set(until_s, partial(_let_go, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake()  # this one was woken and will not look: the next one shall
            raise
        finally:
            self._hall.waiting -= 1
            deadline.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def wake(self) -> None:
        """Something may be there for one of them."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Let everybody look."""
        while self._waiters:
            self.wake()

    def wake_at(self, at_s: float) -> None:
        """Wake one at a monotonic time, unless that is planned for an earlier one."""
        if self._alarm is not None and self._alarm.call is not None and self._alarm_s <= at_s:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = self._alarms.set(at_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Hall:
    """How many wait in all rooms together."""

    def __init__(self) -> None:
        """Nobody."""
        self.waiting = 0

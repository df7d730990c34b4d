"""Calls at a time: one sleeping task for all of them."""

import asyncio
import heapq
from collections.abc import Callable

from ortoo.common.process.clock import Clock


class Alarm:
    """A call that is to come."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        """To be set by `Alarms`."""
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It shall not come."""
        self.call = None


class Alarms:
    """Calls functions when their time has come."""

    def __init__(self, clock: Clock) -> None:
        """Reckon by `clock`, monotonically."""
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeping_until_s = 0.0
        self._is_closed = False

    def set(self, at_s: float, call: Callable[[], None]) -> Alarm:
        """Call at a monotonic time."""
        alarm = Alarm(call)
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, alarm))
        if not self._is_closed and (self._sleeper is None or self._sleeper.done() or at_s < self._sleeping_until_s):
            if self._sleeper is not None:
                self._sleeper.cancel()
            self._sleeping_until_s = at_s
            self._sleeper = asyncio.get_running_loop().create_task(self._sleep(), name="pops:alarms")
        return alarm

    async def close(self) -> None:
        """Nothing is called any more."""
        self._is_closed = True
        self._heap.clear()
        if self._sleeper is not None:
            self._sleeper.cancel()
            await asyncio.gather(self._sleeper, return_exceptions=True)

    async def _sleep(self) -> None:
        while self._heap:
            at_s, _, alarm = self._heap[0]
            now_s = self._clock.monotonic_s()
            if alarm.call is None or at_s <= now_s:
                heapq.heappop(self._heap)
                if alarm.call is not None:
                    alarm.call()
                continue
            self._sleeping_until_s = at_s
            await self._clock.sleep(at_s - now_s)

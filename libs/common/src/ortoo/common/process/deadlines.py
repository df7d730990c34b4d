"""Calls at a time: a pure heap of deadlines, and one sleeping task that serves them all."""

import asyncio
import heapq
from collections.abc import Callable

from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import contain

_COMPACT_MIN = 64


class DeadlineHeap:
    """Deadlines by time. Pure. Those that were cancelled never outnumber the others by much."""

    def __init__(self) -> None:
        """None."""
        self._heap: list[tuple[float, int]] = []
        """When each comes, and its number; those that were cancelled included."""
        self._calls: dict[int, Callable[[], object]] = {}
        """By number, of those that are to come."""
        self._last = 0

    def __len__(self) -> int:
        """How many are kept, some of the cancelled ones included."""
        return len(self._heap)

    def __contains__(self, number: int) -> bool:
        """Whether it is to come: it has not, and was not cancelled."""
        return number in self._calls

    def add(self, at_s: float, call: Callable[[], object]) -> int:
        """Call at a monotonic time. Returns the deadline's number, from 1."""
        self._last += 1
        self._calls[self._last] = call
        heapq.heappush(self._heap, (at_s, self._last))
        return self._last

    def cancel(self, number: int) -> None:
        """It shall not come; nothing happens when it is not to."""
        self._calls.pop(number, None)
        cancelled = len(self._heap) - len(self._calls)
        if cancelled > max(_COMPACT_MIN, len(self._heap) // 2):
            self._heap = [one for one in self._heap if one[1] in self._calls]
            heapq.heapify(self._heap)

    def next_s(self) -> float | None:
        """When the first one comes; None when there is none."""
        while self._heap and self._heap[0][1] not in self._calls:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_s: float) -> Callable[[], object] | None:
        """The call of the first one, if its time has come."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        return self._calls.pop(heapq.heappop(self._heap)[1])


class DeadlineWheel(DeadlineHeap):
    """Calls functions when their time has come. Belongs to one event loop."""

    def __init__(self, clock: Clock, name: str) -> None:
        """Reckon by `clock`, monotonically; `name` is the sleeping task's."""
        super().__init__()
        self._clock = clock
        self._name = name
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeping_until_s = 0.0
        self._is_closed = False

    def add(self, at_s: float, call: Callable[[], object]) -> int:
        """Call at a monotonic time; never when the wheel is closed before."""
        number = super().add(at_s, call)
        if not self._is_closed and (self._sleeper is None or self._sleeper.done() or at_s < self._sleeping_until_s):
            if self._sleeper is not None:
                self._sleeper.cancel()
            self._sleeping_until_s = at_s
            self._sleeper = asyncio.get_running_loop().create_task(self._sleep(), name=self._name)
        return number

    async def close(self) -> None:
        """Nothing is called any more."""
        self._is_closed = True
        if self._sleeper is not None:
            self._sleeper.cancel()
            await asyncio.gather(self._sleeper, return_exceptions=True)

    async def _sleep(self) -> None:
        while (next_s := self.next_s()) is not None:
            now_s = self._clock.monotonic_s()
            if (call := self.take(now_s)) is not None:
                try:
                    call()
                except Exception as error:  # the other deadlines are other peers'
                    contain(self._name, error)
                continue
            self._sleeping_until_s = next_s
            await self._clock.sleep(next_s - now_s)

"""Timers: a heap of deadlines without I/O, and one sleeping task that serves all deadlines."""

import asyncio
import heapq
from collections.abc import Callable

from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import record_contained

_COMPACT_MIN = 64


class DeadlineHeap:
    """Deadlines ordered by time, without I/O. The number of cancelled deadlines that it still holds is limited."""

    def __init__(self) -> None:
        """Begin without deadlines."""
        self._heap: list[tuple[float, int]] = []
        """The time and the number of each deadline, including cancelled ones."""
        self._calls: dict[int, Callable[[], object]] = {}
        """By number, for pending deadlines."""
        self._last = 0

    def __len__(self) -> int:
        """The number of entries, including some cancelled ones."""
        return len(self._heap)

    def __contains__(self, number: int) -> bool:
        """Whether this deadline is pending: neither passed nor cancelled."""
        return number in self._calls

    def add(self, at_s: float, call: Callable[[], object]) -> int:
        """Call `call` at a monotonic time. Returns the deadline's number, from 1."""
        self._last += 1
        self._calls[self._last] = call
        heapq.heappush(self._heap, (at_s, self._last))
        return self._last

    def cancel(self, number: int) -> None:
        """Cancel a deadline; does nothing if it is not pending."""
        self._calls.pop(number, None)
        cancelled = len(self._heap) - len(self._calls)
        if cancelled > max(_COMPACT_MIN, len(self._heap) // 2):
            self._heap = [one for one in self._heap if one[1] in self._calls]
            heapq.heapify(self._heap)

    def next_s(self) -> float | None:
        """The time of the first deadline; None when there is none."""
        while self._heap and self._heap[0][1] not in self._calls:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_s: float) -> Callable[[], object] | None:
        """Remove the first deadline and return its call; None if its time has not come."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        return self._calls.pop(heapq.heappop(self._heap)[1])


class DeadlineWheel(DeadlineHeap):
    """Calls functions when their time has come. Belongs to one event loop."""

    def __init__(self, clock: Clock, name: str) -> None:
        """Use the monotonic time of `clock`; `name` is the sleeping task's name."""
        super().__init__()
        self._clock = clock
        self._name = name
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeping_until_s = 0.0
        self._is_closed = False

    def add(self, at_s: float, call: Callable[[], object]) -> int:
        """Call `call` at a monotonic time, unless the wheel is closed before."""
        number = super().add(at_s, call)
        if not self._is_closed and (self._sleeper is None or self._sleeper.done() or at_s < self._sleeping_until_s):
            if self._sleeper is not None:
                self._sleeper.cancel()
            self._sleeping_until_s = at_s
            self._sleeper = asyncio.get_running_loop().create_task(self._sleep(), name=self._name)
        return number

    async def close(self) -> None:
        """Stop calling functions."""
        self._is_closed = True
        if self._sleeper is not None:
            self._sleeper.cancel()
            await asyncio.gather(self._sleeper, return_exceptions=True)

    async def _sleep(self) -> None:
        while (next_s := self.next_s()) is not None:
            now_s = self._clock.monotonic_s()
            if (call := self.pop_due(now_s)) is not None:
                try:
                    call()
                except Exception as error:  # the other deadlines are other peers'
                    record_contained(self._name, error)
                continue
            self._sleeping_until_s = next_s
            await self._clock.sleep(next_s - now_s)

"""Calls at a time: a pure heap of deadlines, and one sleeping task that serves them all."""

import asyncio
import heapq
from collections.abc import Callable

from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import contain

_COMPACT_MIN = 64


class Deadline:
    """A call that is to come."""

    __slots__ = ("_heap", "call")

    def __init__(self, heap: "DeadlineHeap", call: Callable[[], object]) -> None:
        """Made by `DeadlineHeap.add`."""
        self._heap = heap
        self.call: Callable[[], object] | None = call
        """None when it has come, or shall not."""

    def cancel(self) -> None:
        """It shall not come; a second time does nothing."""
        if self.call is not None:
            self.call = None
            self._heap.count_cancelled()


class DeadlineHeap:
    """Deadlines by time. Pure. Those that were cancelled never outnumber the others by much."""

    def __init__(self) -> None:
        """None."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._number = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_s: float, call: Callable[[], object]) -> Deadline:
        """Call at a monotonic time."""
        deadline = Deadline(self, call)
        self._number += 1
        heapq.heappush(self._heap, (at_s, self._number, deadline))
        return deadline

    def next_s(self) -> float | None:
        """When the first one comes; None when there is none."""
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def take(self, now_s: float) -> Callable[[], object] | None:
        """The call of the first one, if its time has come."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        deadline = heapq.heappop(self._heap)[2]
        call, deadline.call = deadline.call, None
        return call

    def count_cancelled(self) -> None:
        """One of the deadlines was cancelled."""
        self._cancelled += 1
        if self._cancelled > max(_COMPACT_MIN, len(self._heap) // 2):
            self._heap = [one for one in self._heap if one[2].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0


class DeadlineWheel:
    """Calls functions when their time has come. Belongs to one event loop."""

    def __init__(self, clock: Clock, name: str) -> None:
        """Reckon by `clock`, monotonically; `name` is the sleeping task's."""
        self._clock = clock
        self._name = name
        self._heap = DeadlineHeap()
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeping_until_s = 0.0
        self._is_closed = False

    def __len__(self) -> int:
        """How many are kept, some of the cancelled ones included."""
        return len(self._heap)

    def set(self, at_s: float, call: Callable[[], object]) -> Deadline:
        """Call at a monotonic time; never when the wheel is closed before."""
        deadline = self._heap.add(at_s, call)
        if not self._is_closed and (self._sleeper is None or self._sleeper.done() or at_s < self._sleeping_until_s):
            if self._sleeper is not None:
                self._sleeper.cancel()
            self._sleeping_until_s = at_s
            self._sleeper = asyncio.get_running_loop().create_task(self._sleep(), name=self._name)
        return deadline

    async def close(self) -> None:
        """Nothing is called any more."""
        self._is_closed = True
        if self._sleeper is not None:
            self._sleeper.cancel()
            await asyncio.gather(self._sleeper, return_exceptions=True)

    async def _sleep(self) -> None:
        while (next_s := self._heap.next_s()) is not None:
            now_s = self._clock.monotonic_s()
            if (call := self._heap.take(now_s)) is not None:
                try:
                    call()
                except Exception as error:  # the other deadlines are other peers'
                    contain(self._name, error)
                continue
            self._sleeping_until_s = next_s
            await self._clock.sleep(next_s - now_s)

"""Readers that wait at the end of a queue, woken by the next batch or by the time."""

import asyncio
import heapq

from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import Clock
from ortoo.enode.index.catalog import QueueLog


class Waiting:
    """All waiting readers of a store. One sleeping task serves all their deadlines."""

    def __init__(self, clock: Clock, *, waiters_max: int) -> None:
        """At most `waiters_max` wait at once."""
        self._clock = clock
        self._waiters_max = waiters_max
        self._loop = asyncio.get_running_loop()
        self._deadlines: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeping_until = 0.0
        self._closed = False
        self.count = 0

    async def wait(self, queue: QueueLog, wait_ms: int) -> None:
        """Return at the queue's next batch, after `wait_ms`, or when the store closes. Errors: Overloaded."""
        if self._closed:
            return
        if self.count >= self._waiters_max:
            raise Overloaded(f"{self.count} fetches wait already", retry_after_ms=1000)
        waiter: asyncio.Future[None] = self._loop.create_future()
        deadline = self._clock.monotonic_s() + wait_ms / 1000
        self._number += 1
        if len(self._deadlines) > 1000 + 2 * self.count:
            self._deadlines = [one for one in self._deadlines if not one[2].done()]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (deadline, self._number, waiter))
        queue.waiters.append(waiter)
        self.count += 1
        if self._sleeper is None or self._sleeper.done() or deadline < self._sleeping_until:
            self._restart(deadline)
        try:
            await waiter
        finally:
            self.count -= 1
            if waiter in queue.waiters:
                queue.waiters.remove(waiter)

    def wake(self, queue: QueueLog) -> None:
        """A batch of this queue can be read now."""
        waiters, queue.waiters = queue.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Let everybody go; nobody waits any more."""
        self._closed = True
        if self._sleeper is not None:
            self._sleeper.cancel()
        for _, _, waiter in self._deadlines:
            if not waiter.done():
                waiter.set_result(None)
        self._deadlines.clear()

    def _restart(self, deadline: float) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        self._sleeping_until = deadline
        self._sleeper = self._loop.create_task(self._sleep(), name="store:deadlines")

    async def _sleep(self) -> None:
        while self._deadlines:
            deadline, _, waiter = self._deadlines[0]
            now = self._clock.monotonic_s()
            if waiter.done() or deadline <= now:
                heapq.heappop(self._deadlines)
                if not waiter.done():
                    waiter.set_result(None)
                continue
            self._sleeping_until = deadline
            await self._clock.sleep(deadline - now)

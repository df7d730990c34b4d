"""Disk work without threads: drawn latencies, and the same guarantees as the threaded implementation."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from ortoo.common.errors import Unavailable
from ortoo.common.process.long_work import wait_uncancelled
from ortoo.common.process.randomness import Randomness
from ortoo.enode.log.flushing.disk_work import DiskWork, Done
from ortoo.enode.log.flushing.flush_group import FlushGroup

P = ParamSpec("P")
T = TypeVar("T")
READ_LANES = 4
HANG_POLL_S = 0.02
"""The interval at which work on a hanging disk checks whether the disk answers again."""


@dataclass(slots=True)
class Latency:
    """The latency of a disk's work: most of it is quick, some is not."""

    least_s: float = 0.000_1
    usual_s: float = 0.003
    """The usual maximum."""
    seldom: float = 0.01
    """The share of work that takes longer."""
    seldom_s: float = 0.15
    """The maximum of that share."""
    factor: float = 1.0
    """The slowdown of a disk in trouble."""
    is_hanging: bool = False
    """Whether the disk completes nothing: work that has begun waits."""

    def drawn(self, chance: Randomness) -> float:
        """The latency of the next piece of work, in seconds."""
        most_s = self.seldom_s if chance.uniform(0.0, 1.0) < self.seldom else self.usual_s
        return chance.uniform(self.least_s, most_s) * self.factor


class WorkLane:
    """One thread's work, done one piece after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Randomness, latency: Latency) -> None:
        """Start without work."""
        self.waiting: deque[Callable[[], Callable[[], object]]] = deque()
        """Pending pieces of work; each returns the callback to run on the loop."""
        self._loop = loop
        self._chance = chance
        self._latency = latency
        self._is_busy = False
        self._context = copy_context()  # the store's context, not that of the first request

    def put(self, work: Callable[[], Callable[[], object]]) -> None:
        """Do `work` after all earlier pieces."""
        self.waiting.append(work)
        if not self._is_busy:
            self._begin()

    def finish(self) -> None:
        """Do all pending work now."""
        while self.waiting:
            self._loop.call_soon(self.waiting.popleft()(), context=self._context)

    def _begin(self) -> None:
        self._is_busy = True
        self._loop.call_later(self._latency.drawn(self._chance), self._do, context=self._context)

    def _do(self) -> None:
        if self._latency.is_hanging and self.waiting:
            self._loop.call_later(HANG_POLL_S, self._do, context=self._context)
            return
        self._is_busy = False
        if not self.waiting:
            return  # it was finished meanwhile
        tell = self.waiting.popleft()()
        # The callback runs a moment later, and work continues meanwhile.
        self._loop.call_later(self._latency.drawn(self._chance) / 8, tell, context=self._context)
        if self.waiting:
            self._begin()


class SimulatedDiskWork(DiskWork):
    """One lane for flushes, one for scans, and a few for everything else."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chance: Randomness,
        latency: Latency,
        writes: Callable[[], object] = lambda: None,
    ) -> None:
        """Work with latencies from `chance` and `latency`; `writes` is called when a flush begins."""
        super().__init__(loop)
        self._closed = False
        self._writes = writes
        self._flushing = WorkLane(loop, chance, latency)
        self._scanning = WorkLane(loop, chance, latency)
        self._reading = [WorkLane(loop, chance, latency) for _ in range(READ_LANES)]

    @property
    def lanes(self) -> list[WorkLane]:
        """All lanes, that of the flushes first."""
        return [self._flushing, self._scanning, *self._reading]

    def flush(self, group: FlushGroup, done: Done) -> None:
        """Write a group, then call `done` on the loop."""

        def work() -> Callable[[], object]:
            error: BaseException | None = None
            try:
                group.write()
            except Exception as caught:
                error = caught
            return lambda: done(group, error)

        self._flushing.put(work)
        self._writes()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in one of the lanes. A cancelled caller still waits for it."""
        lane = min(self._reading, key=lambda lane: len(lane.waiting))
        return await self._run_in(lane, partial(work, *args, **kwargs))

    async def scan(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the scans' lane, as `run`."""
        return await self._run_in(self._scanning, partial(work, *args, **kwargs))

    async def _run_in(self, lane: WorkLane, work: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        answer: asyncio.Future[T] = self._loop.create_future()

        def step() -> Callable[[], object]:
            try:
                result = work()
            except Exception as caught:
                return _failing(answer, caught)
            return lambda: None if answer.done() else answer.set_result(result)

        lane.put(step)
        return await wait_uncancelled(answer)

    def close(self) -> None:
        """Finish all pending work."""
        self._closed = True
        for lane in self.lanes:
            lane.finish()


def _failing(answer: "asyncio.Future[Any]", error: Exception) -> Callable[[], object]:
    return lambda: None if answer.done() else answer.set_exception(error)

"""The watch of a server's memory, while the process has no free descriptor for a moment."""

import asyncio
import resource

from ortoo.common.grpc.limits.connection_limits import ConnectionLimits
from ortoo.common.grpc.limits.connection_watch import ConnectionWatch
from ortoo.common.grpc.limits.memory_guard import MemoryGuard
from ortoo.common.machine.allocator import resident_bytes
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget


class LookClock(SystemClock):
    """A clock that signals each check by the sleep behind it."""

    def __init__(self) -> None:
        self.looks = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        """Only yield, so that the checks follow each other."""
        self.looks.release()
        await super().sleep(0)


async def test_the_memory_is_watched_again_once_descriptors_are_free() -> None:
    """The resident memory cannot be read without a descriptor. The watch must continue, and reduce the budget later."""
    budget, clock = MemoryBudget(1 << 20), LookClock()
    budget.limit_bytes = 1 << 50
    watch = ConnectionWatch(ConnectionLimits(64, 64), None, MemoryGuard(budget), clock)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with asyncio.timeout(20), Background("watch") as background:
        background.spawn("memory", watch.look_at_memory())
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            assert resident_bytes() == 0
            for _ in range(3):
                await clock.looks.acquire()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        budget.limit_bytes = 1
        while not budget.is_closed:
            await clock.looks.acquire()

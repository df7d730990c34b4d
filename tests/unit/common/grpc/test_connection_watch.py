"""The watch of a server's memory, over a process that has no descriptor left for a moment."""

import asyncio
import resource

from ortoo.common.grpc.limits.connection_limits import ConnectionLimits
from ortoo.common.grpc.limits.connection_watch import ConnectionWatch
from ortoo.common.grpc.limits.memory_guard import MemoryGuard
from ortoo.common.machine.allocator import resident_bytes
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget


class CountingClock(SystemClock):
    """Counts the looks by their sleeps."""

    sleeps = 0

    async def sleep(self, seconds: float) -> None:
        """Yield only, so that the looks follow each other."""
        self.sleeps += 1
        await asyncio.sleep(0)


async def test_the_memory_is_watched_again_once_descriptors_are_free() -> None:
    """The resident memory cannot be read without a descriptor. The watch must go on, and close the budget later."""
    budget, clock = MemoryBudget(1 << 20), CountingClock()
    budget.limit_bytes = 1 << 50
    watch = ConnectionWatch(ConnectionLimits(64, 64), None, MemoryGuard(budget), clock)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with asyncio.timeout(20), Background("watch") as background:
        task = background.spawn("memory", watch.look_at_memory())
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            assert resident_bytes() == 0
            while clock.sleeps < 3 and not task.done():
                await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        budget.limit_bytes = 1
        while not budget.is_closed:
            assert not task.done()
            await asyncio.sleep(0)

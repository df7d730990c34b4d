"""The watch of a server's connections, and of its memory while the process has no free descriptor for a moment."""

import asyncio
import resource
from collections.abc import Collection

import pytest

from ortoo.common.grpc.limits import connection_watch
from ortoo.common.grpc.limits.connection_limits import ConnectionLimits
from ortoo.common.grpc.limits.connection_watch import ConnectionWatch
from ortoo.common.grpc.limits.connections import ServerConnection
from ortoo.common.grpc.limits.memory_guard import MemoryGuard
from ortoo.common.machine.allocator import resident_bytes
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.verification.time.stepped_clock import SetClock


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
    async with asyncio.timeout(60), Background("watch") as background:
        background.spawn("memory", watch.watch_memory())
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


class Compared(ServerConnection):
    """A connection that counts comparisons with others."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return super().__eq__(other)

    __hash__ = ServerConnection.__hash__


async def test_a_check_of_many_connections_compares_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of each connection with each closed one took seconds where an address had thousands.

    The system's list of connections is also read only once, for all purposes of the check.
    """
    many = [Compared(-1, 8081, ("10.0.0.1", port), 0, 0) for port in range(1, 401)]
    clock, reads = LookClock(), list[Collection[int]]()

    def connections_to(ports: Collection[int]) -> list[ServerConnection]:
        reads.append(ports)
        return [*many]

    monkeypatch.setattr(connection_watch, "connections_to", connections_to)
    watch = ConnectionWatch(ConnectionLimits(1, 200), None, MemoryGuard(MemoryBudget(1 << 20)), clock)
    async with asyncio.timeout(60), Background("watch") as background:
        background.spawn("connections", watch.watch_connections())
        await clock.looks.acquire()
        assert len(reads) == 1
    assert Compared.count <= len(many)


class Counted(ServerConnection):
    """Counts the connections that exist at the same time."""

    count = count_max = 0

    def __init__(self, port: int) -> None:
        super().__init__(-1, 8081, ("10.0.0.1", port), 0, 0)
        Counted.count += 1
        Counted.count_max = max(Counted.count, Counted.count_max)

    def __del__(self) -> None:
        Counted.count -= 1


async def test_no_connection_is_kept_while_received_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise thousands of them start a garbage collection, for which the event loop waits."""
    monkeypatch.setattr(connection_watch, "each_connection_to", lambda ports: map(Counted, range(1, 401)))
    clock = LookClock()
    watch = ConnectionWatch(ConnectionLimits(1 << 20, 1 << 20), None, MemoryGuard(MemoryBudget(1 << 20)), clock)
    async with asyncio.timeout(20), Background("watch") as background:
        background.spawn("connections", watch.watch_connections())
        await clock.looks.acquire()
    assert len(watch._receipts_next) == 400
    assert Counted.count_max <= 2


@pytest.mark.parametrize(("peers", "interval_s"), [(10, 20), (2_000, 40)])
def test_the_received_bytes_of_many_peers_are_read_less_often(
    monkeypatch: pytest.MonkeyPatch, peers: int, interval_s: int
) -> None:
    """A reading takes at most 50 peers for each second, and comes after 20 s at the earliest."""
    clock, reads_s = SetClock(), list[float]()

    def each_connection_to(ports: Collection[int]) -> list[ServerConnection]:
        reads_s.append(clock.now_s)
        return [ServerConnection(-1, 8081, ("10.0.0.1", port), 0, 0) for port in range(peers)]

    monkeypatch.setattr(connection_watch, "each_connection_to", each_connection_to)
    watch = ConnectionWatch(ConnectionLimits(8192, 8192), None, MemoryGuard(MemoryBudget(1 << 20)), clock)
    for second in range(2 * interval_s + 1):
        clock.now_s = float(second)
        watch._is_crowded()
    assert reads_s == [0, interval_s, 2 * interval_s]

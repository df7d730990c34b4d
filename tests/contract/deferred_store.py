"""A store in memory with running delayed messages, transactions and schedules, whose power can be cut at any moment."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID, HALF_TOPIC_ID
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import open_batch
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.delays.segment_rescue import SegmentRescue
from ortoo.enode.schedules.runner import ScheduleRunner
from ortoo.enode.transactions.checks import CheckSchedule
from ortoo.enode.transactions.coordinator import TransactionCoordinator
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.single_store import SingleStore
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.one_store import QUEUES, TOPIC, OneStore


@dataclass(slots=True)
class DeferredStore(OneStore):
    """An open store and the tasks that work on it."""

    delays: DelayScheduler = field(init=False)
    transactions: TransactionCoordinator = field(init=False)
    schedules: ScheduleRunner = field(init=False)
    _background: Background | None = None

    async def open(self) -> SingleStore:
        """Open it and start all tasks; earlier tasks on the store ended with its process."""
        await self.halt()
        store = await OneStore.open(self)
        self._background = background = await Background("deferred").__aenter__()
        self.delays = DelayScheduler(store, background, clock=self.clock)
        self.transactions = TransactionCoordinator(store, background, CheckSchedule(1_000, 1_000, 3), clock=self.clock)
        store.engine.housekeeping.rescues[DELAYED_TOPIC_ID] = SegmentRescue(store, clock=self.clock).rescue
        store.engine.housekeeping.rescues[HALF_TOPIC_ID] = self.transactions.rescue
        background.spawn("delays", self.delays.run())
        background.spawn("transactions", self.transactions.run())
        self.schedules = ScheduleRunner(store, background, clock=self.clock)
        background.spawn("schedules", self.schedules.run())
        return store

    async def halt(self) -> None:
        """Stop the tasks on the store at once."""
        background, self._background = self._background, None
        if background is not None:
            await background.__aexit__(None, None, None)

    async def visible(self) -> list[tuple[bytes, int]]:
        """Bodies in all queues, each with its storage time."""
        found = []
        for queue_id in range(QUEUES):
            offset = self.store.describe_queues(TOPIC)[queue_id].begin_offset
            while (fetched := await self.store.fetch(TOPIC, queue_id, offset)).batches:
                found += [(it, one.stored_at_ms) for one in fetched.batches for it in open_batch(one.batch).bodies()]
                offset = fetched.next_offset
        return found


Said = list[tuple[int, str, bytes]]
"""Acknowledged operations: the number of disk operations before each, its name, and its message."""


async def power_cuts(
    workload: Callable[[DeferredStore, Callable[[str, bytes], None]], Awaitable[None]], *, points: int
) -> AsyncIterator[tuple[set[tuple[str, bytes]], Counter[bytes], DeferredStore]]:
    """Run a workload once, then cut the power at this number of its points, and open the remaining store.

    Returns for each the earlier acknowledgements, the number of times that each body is later visible, and the store.
    """
    memory = MemoryDisk(record=True)
    one = DeferredStore(disk=FaultyDisk(memory))
    await one.open()
    said: Said = []
    begin = len(memory.operations)
    await workload(one, lambda what, body: said.append((len(memory.operations), what, body)))
    await one.halt()
    operations = list(memory.operations)
    for number in range(points):
        point = begin + (len(operations) - begin) * number // (points - 1)
        left = MemoryDisk.replayed(operations[:point]).after_crash(Randomness(number))
        again = DeferredStore(clock=VirtualClock(one.clock.now_ms() + 60_000), disk=FaultyDisk(left))
        await again.open()
        await again.clock.pass_time(1)
        seen = Counter(body for body, _ in await again.visible())
        yield {(what, body) for at, what, body in said if at <= point}, seen, again
        await again.halt()
        await again.store.close()
    await one.store.close()

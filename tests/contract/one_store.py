"""A store with one topic on a disk in memory, and common operations of its tests."""

from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.log.results import AppendResult, TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.testing.disks.disk_image import CrashOutcome
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import USUAL_OUTCOME, MemoryDisk
from ortoo.verification.store.model import observe
from ortoo.verification.store.single_store import SingleStore, open_single_store
from ortoo.verification.store.workload import FOLDER
from ortoo.verification.time.virtual_clock import VirtualClock

TOPIC = 5
QUEUES = 3
SETTINGS = StoreSettings(segment_bytes=8192, headroom_bytes=0, recent_bytes=2000, retention_age_ms=0, threads=False)


def batch(text: bytes, count: int = 1, producer_id: int = 0, first_sequence: int = 0) -> SealedBatch:
    """A batch whose bytes are `text`."""
    return SealedBatch(text, crc32c(text), count, len(text), producer_id, first_sequence)


@dataclass(slots=True)
class OneStore:
    """An open store, its disk and its clock."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    disk: FaultyDisk = field(default_factory=lambda: FaultyDisk(MemoryDisk()))
    settings: StoreSettings = SETTINGS
    store: SingleStore = field(init=False)

    async def open(self) -> SingleStore:
        """Open it; the topic exists."""
        self.store = await open_single_store(
            FOLDER, settings=self.settings, disk=self.disk, clock=self.clock, randomness=Randomness(1)
        )  # fmt: skip
        if not self.store.topics():
            await self.store.put_topics([TopicCopy(TOPIC, "orders", QUEUES, 1)])
        return self.store

    async def crash(self, seed: int, fate: CrashOutcome = USUAL_OUTCOME) -> SingleStore:
        """Cut the power, and open the remaining store."""
        before, self.disk = self.store, FaultyDisk(self.disk.after_crash(Randomness(seed), fate))
        await self.open()
        await before.close()
        return self.store

    async def restart(self) -> SingleStore:
        """Stop and start again."""
        await self.store.close()
        return await self.open()

    async def append(self, text: bytes, queue_id: int = 0, count: int = 1) -> AppendResult:
        """Store a batch."""
        return await self.store.append(TOPIC, queue_id, batch(text, count))

    async def texts(self, queue_id: int = 0) -> list[tuple[int, bytes]]:
        """Everything in a queue: first offsets and bytes. Fails when offsets are not dense."""
        found = await observe(self.store)
        return [(first_offset, one.records) for first_offset, one in found.batches[TOPIC, queue_id]]


async def refusal(store: SingleStore, one: SealedBatch, queue_id: int = 0, topic_id: int = TOPIC) -> OrtooError | None:
    """Why a batch is not stored; None when it is."""
    try:
        await store.append(topic_id, queue_id, one)
    except OrtooError as error:
        return error
    return None

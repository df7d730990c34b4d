"""A closed store with acknowledged batches and offsets, as it is before damage."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import SUFFIX
from ortoo.enode.log.settings import StoreSettings
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED, FileContent
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.single_store import SingleStore, open_single_store
from ortoo.verification.store.workload import FOLDER
from ortoo.verification.time.virtual_clock import VirtualClock

TOPICS = 3
QUEUES = 4
GROUP = "readers"


@dataclass(frozen=True, slots=True)
class AcknowledgedBatch:
    """An acknowledged batch."""

    first_offset: int
    batch: SealedBatch
    end_position: int
    """The position in the log where its frame ends."""

    @property
    def end_offset(self) -> int:
        """The offset behind it."""
        return self.first_offset + self.batch.count


@dataclass(slots=True)
class UndamagedStore:
    """A store before it is damaged."""

    settings: StoreSettings
    files: dict[str, bytes]
    """Its files as a killed process leaves them, and the marker of a clean stop."""
    batches: dict[tuple[int, int], list["AcknowledgedBatch"]]
    offsets: dict[tuple[int, int], tuple[int, int]]
    """Queue to (committed offset, position in the log where the commit ends)."""
    end_position: int
    """The end of the log when the process was killed; the last frame records everything before it as durable."""
    shared: dict[str, FileContent] = field(default_factory=dict)


def build_store(size_bytes: int, seed: int) -> UndamagedStore:
    """A store of about `size_bytes`, on a disk in memory, stopped cleanly."""
    settings = StoreSettings(
        segment_bytes=max(64 << 10, size_bytes // 13 // 64 * 64), headroom_bytes=0, recent_bytes=0, retention_age_ms=0,
        idle_mark_ms=50, threads=False, checkpoint_records=400,
    )  # fmt: skip
    disk, clock, chance = MemoryDisk(), VirtualClock(), Randomness(seed)
    sent: dict[tuple[int, int], list[tuple[int, SealedBatch]]] = {}
    offsets: dict[tuple[int, int], tuple[int, int]] = {}
    block = b"".join(b"%08x" % chance.below(1 << 32) for _ in range(16 << 10))

    async def fill() -> int:
        store = await open_store(disk, clock, settings)
        await store.put_topics([TopicCopy(topic, f"topic-{topic}", QUEUES, 1) for topic in range(1, TOPICS + 1)])
        number = 0
        while store.describe().log_bytes < size_bytes:
            number += 1
            key = (1 + chance.below(TOPICS), chance.below(QUEUES))
            at = chance.below(len(block) // 2)
            body = b"%d " % number + block[at : at + 1 + chance.below(min(len(block) // 2, size_bytes // 100))]
            batch = SealedBatch(body, crc32c(body), 1 + chance.below(9), len(body))
            answer = await store.append(*key, batch)
            sent.setdefault(key, []).append((answer.first_offset, batch))
            if number % 10 == 0:
                await store.offsets.commit(key[0], GROUP, {key[1]: answer.first_offset})
                offsets[key] = (answer.first_offset, store.describe().durable_position)
        await clock.sleep(1)
        end_position = store.describe().durable_position
        files.update(_files(disk))
        await store.close()
        files["clean"] = _files(disk)["clean"]
        return end_position

    files: dict[str, bytes] = {}
    end_position = clock.run(fill)
    for name in [name for name in files if name.endswith(".spare")]:
        del files[name]
    ends = _frame_ends(files)
    batches = {
        key: [AcknowledgedBatch(first_offset, batch, ends[*key, first_offset]) for first_offset, batch in some]
        for key, some in sent.items()
    }
    return UndamagedStore(settings, files, batches, offsets, end_position)


def _read(data: bytes, base: int, position: int, length: int) -> bytes:
    return data[position - base : position - base + length]


def _frame_ends(files: dict[str, bytes]) -> dict[tuple[int, int, int], int]:
    """The position in the log where each batch ends, by topic, queue and first offset."""
    ends = {}
    for name, data in files.items():
        if name.endswith(SUFFIX):
            base = int(name.split(".")[0])
            for one in walk(partial(_read, data, base), base, base + len(data)):
                if isinstance(one, FrameHeader) and one.kind == FrameKind.MESSAGES:
                    ends[one.topic_id, one.queue_id, one.first_offset] = one.end_position
    return ends


async def open_store(disk: MemoryDisk, clock: VirtualClock, settings: StoreSettings) -> SingleStore:
    """The store on `disk`."""
    return await open_single_store(FOLDER, settings=settings, disk=disk, clock=clock, randomness=Randomness(1))


def _files(disk: MemoryDisk) -> dict[str, bytes]:
    left = disk.after_crash(Randomness(0), KEEP_UNSYNCED)
    files = {}
    for name in left.list(FOLDER):
        file = left.open(Path(FOLDER) / name)
        files[name] = file.read(0, file.size_bytes())
    return files

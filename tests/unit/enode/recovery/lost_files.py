"""Closed stores of an enode without replicas: files by name, and the acknowledged data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode
from ortoo.enode.disk.identity import FILE_NAME as IDENTITY_NAME
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.offline.backup import take_backup
from ortoo.enode.offline.restore import make_store
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.single_store import SingleStore, open_single_store
from ortoo.verification.store.workload import FOLDER
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.one_store import SETTINGS

TOPIC = 5
QUEUES = 2
BODY_BYTES = 400
MOST_LOST = 1_000
"""The offsets that a store leaves out behind a lost segment; more than it could have held."""
SMALL = replace(SETTINGS, retention_bytes=24 << 10)
Files = Mapping[str, bytes]
Queues = dict[tuple[int, int], bytes]
"""(queue, offset) to the batch that is stored there."""


@dataclass(slots=True)
class AtRest:
    """A store that no process has open."""

    files: Files
    older: Files
    """Its files before the last part of it was stored."""
    acknowledged: Queues
    committed: dict[int, int]
    """The offsets of a group."""
    store_id: str
    keys: Mapping[tuple[int, int], str]
    """The key of each message."""


@dataclass(slots=True)
class Life:
    """A store while it is in use."""

    seed: int
    disk: FaultyDisk = field(default_factory=lambda: FaultyDisk(MemoryDisk()))
    clock: VirtualClock = field(default_factory=VirtualClock)
    keys: dict[tuple[int, int], str] = field(default_factory=dict)
    """The key of each stored message."""
    store: SingleStore = field(init=False)

    async def open(self) -> SingleStore:
        """Start it. Errors: as `open_replicated_log`."""
        self.seed += 1
        self.store = await open_single_store(
            FOLDER, settings=SMALL, disk=self.disk, clock=self.clock, randomness=Randomness(self.seed)
        )
        return self.store

    async def send(self, count: int) -> Queues:
        """Store messages, each with its own key; their places."""
        found: Queues = {}
        for _ in range(count):
            queue_id, key = len(self.keys) % QUEUES, f"{self.seed}-{len(self.keys)}"
            message = Message(key.encode().ljust(BODY_BYTES, b"."), "t", (key,))
            batch = encode([message], now_ms=self.clock.now_ms())
            stored = await self.store.append(TOPIC, queue_id, batch)
            found[queue_id, stored.first_offset] = batch.records
            self.keys[queue_id, stored.first_offset] = key
            await self.clock.pass_time(0.01)
        return found

    async def seen(self) -> tuple[Queues, set[tuple[int, int]]]:
        """The readable messages, and the offsets that are reported as lost."""
        found, lost = Queues(), set[tuple[int, int]]()
        for queue in self.store.describe_queues(TOPIC):
            offset = queue.begin_offset
            while offset < queue.end_offset:
                try:
                    fetched = await self.store.fetch(TOPIC, queue.queue_id, offset)
                except DataLoss as error:
                    next_offset = int(error.message.rpartition("offset ")[2])
                    lost |= {(queue.queue_id, gone) for gone in range(offset, min(next_offset, offset + MOST_LOST))}
                    offset = next_offset
                    continue
                found |= {(queue.queue_id, one.first_offset): one.batch.records for one in fetched.batches}
                offset = fetched.next_offset
        return found, lost

    async def kill(self) -> None:
        """End the process without a clean stop."""
        left = FaultyDisk(self.disk.after_crash(Randomness(1), KEEP_UNSYNCED))
        await self.store.close()
        self.disk = left


def files_of(disk: FaultyDisk, folder: Path = FOLDER) -> dict[str, bytes]:
    """All files of a folder."""
    found = {}
    for name in disk.list(folder):
        file = disk.open(folder / name, writable=False)
        found[name] = file.read(0, file.size_bytes())
        file.close()
    return found


def disk_of(files: Files) -> FaultyDisk:
    """A disk with these files."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    for name, content in files.items():
        file = disk.open(FOLDER / name, create=True)
        file.write(0, [content])
        file.sync_data()
        file.close()
    disk.sync_directory(FOLDER)
    return FaultyDisk(disk)


async def made(seed: int, how: str) -> AtRest:
    """A store of several segments whose first ones retention deleted; stopped, killed, or restored from a backup."""
    life = Life(seed)
    store = await life.open()
    await store.put_topics([TopicCopy(TOPIC, "orders", QUEUES, 1)])
    await life.send(50)
    await _grown_old(life)
    await store.offsets.commit(TOPIC, "g", {0: 3})
    await store.close()
    older = files_of(life.disk)
    store = await life.open()
    await life.send(22)
    await _grown_old(life)
    await store.offsets.commit(TOPIC, "g", {0: 17})
    await life.send(2)
    later = files_of(life.disk)
    await life.send(2)
    await life.clock.pass_time(1)
    acknowledged, lost = await life.seen()
    assert not lost
    committed, store_id = store.offsets.of(TOPIC, "g"), store.describe().store_id
    await (life.kill() if how == "killed" else store.close())
    if how == "restored":
        backup, restored = Path("/backup"), Path("/restored")
        take_backup(life.disk, FOLDER, backup, life.clock)
        make_store(life.disk, backup, restored, life.clock, Randomness(seed))
        files = files_of(life.disk, restored)
        return AtRest(
            files, files, acknowledged, committed, store_id, life.keys
        )  # it was never started, so there are no older files
    else:
        files = files_of(life.disk) | {f"{IDENTITY_NAME}.tmp": b"half"}
    older = files | later | older
    assert max(name for name in files if name.endswith(".seg")) in later
    return AtRest(files, older, acknowledged, committed, store_id, life.keys)


async def _grown_old(life: Life) -> None:
    """Write two checkpoints, so that retention deletes the segments before them."""
    await life.clock.pass_time(1)
    housekeeping = life.store.engine.housekeeping
    await housekeeping.checkpoint()
    await housekeeping.checkpoint()
    await housekeeping.apply_retention()
    await life.clock.pass_time(1)

"""`ortoo-enode backup` and `restore`: the store at the begin of the backup, which continues to be written."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict, DataLoss, Fenced, NotFound, Unsupported
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.disk.disk import RealDisk, RealFile
from ortoo.enode.disk.log_begin import LogBegin, read_log_begin, write_log_begin
from ortoo.enode.disk.log_summary_file import StoredLogSummary, write_log_summary
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.segment import segment_bases, segment_name
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.offline.backup import take_backup
from ortoo.enode.offline.restore import make_store
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary
from ortoo.enode.store.lock_table import LockGranted, LockRequest
from ortoo.verification.store.crashed_copy import crashed_copy
from ortoo.verification.store.single_store import SingleStore, open_single_store

SETTINGS = StoreSettings(
    segment_bytes=16 << 10, headroom_bytes=0, retention_age_ms=0, retention_bytes=40_000, retention_interval_ms=5
)
CLOCK = SystemClock()


@contextmanager
def noticing(disk: RealDisk, suffix: str) -> Iterator[list[Path]]:
    """The files with `suffix` that were created."""
    made: list[Path] = []
    plain = disk.open

    def opened(path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        if create and suffix in path.name:
            made.append(path)
        return plain(path, create=create, writable=writable)

    disk.open = opened  # type: ignore[method-assign]
    yield made


async def opened(folder: Path, seed: int = 1, settings: StoreSettings = SETTINGS) -> SingleStore:
    """Open the store."""
    return await open_single_store(folder, settings=settings, disk=RealDisk(), clock=CLOCK, randomness=Randomness(seed))


class Sender:
    """Appends one batch after another with a producer's numbers."""

    def __init__(self, store: SingleStore) -> None:
        self.store = store
        self.acknowledged = 0

    async def send(self, count: int) -> None:
        """Store batches of two messages."""
        for _ in range(count):
            data = b"%08d" % self.acknowledged * 50
            await self.store.append(1, 0, SealedBatch(data, crc32c(data), 2, 400, 9, self.acknowledged * 2))
            self.acknowledged += 1


async def batches(store: SingleStore) -> list[tuple[int, bytes]]:
    """(first offset, bytes) of every batch."""
    found = []
    [queue, *_] = store.describe_queues(1)
    offset = queue.begin_offset
    while offset < queue.end_offset:
        fetched = await store.fetch(1, 0, offset)
        found += [(one.first_offset, bytes(one.batch.records)) for one in fetched.batches]
        offset = fetched.next_offset
    return found


async def test_a_backup_of_a_store_that_is_written_is_the_store_at_that_moment(tmp_path: Path) -> None:
    """All data acknowledged before is in it, each batch whole and at its offset, and also offsets of groups.

    Meanwhile batches are stored and retention deletes segments; a second backup copies only what is new.
    """
    disk = RealDisk()
    store = await opened(tmp_path / "store")
    await store.put_topics([TopicCopy(1, "orders", 1, 1)])
    sender = Sender(store)
    await sender.send(60)
    await store.offsets.commit(1, "billing", {0: 7})
    for number in range(6):
        acknowledged = sender.acknowledged
        await asyncio.gather(
            asyncio.to_thread(take_backup, disk, tmp_path / "store", tmp_path / "backup", CLOCK), sender.send(30)
        )
        restored = tmp_path / f"restored-{number}"
        make_store(disk, tmp_path / "backup", restored, CLOCK, Randomness(2))
        async with asyncio.timeout(60):
            other = await opened(restored, settings=replace(SETTINGS, retention_bytes=0))
            assert not other.describe().damages
            [queue] = other.describe_queues(1)
            assert 2 * acknowledged <= queue.end_offset <= 2 * sender.acknowledged
            assert other.offsets.of(1, "billing") == {0: 7}
            for offset, data in await batches(other):
                assert data == b"%08d" % (offset // 2) * 50
            assert other.describe().store_id != store.describe().store_id
            # A producer that was ahead must start again, and has no permanent gap.
            data = b"%08d" % 9 * 50
            with pytest.raises(NotFound, match="Take a new producer id"):
                await other.append(1, 0, SealedBatch(data, crc32c(data), 2, 400, 9, 2 * sender.acknowledged + 50))
            await other.close()
    assert store.describe().log_begin_position > 0
    before, _ = take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    assert min(before.segments) > 0
    with noticing(disk, ".seg") as made:
        again, new_bytes = take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    assert len(made) == 1 < len(again.segments)
    assert new_bytes == again.end_position - max(again.segments)
    await store.close()


async def test_who_outlived_a_lost_store_begins_again_at_the_restored_one(tmp_path: Path) -> None:
    """A reader under an old lock would skip new messages; also when the first start ends by a crash."""
    disk, key = RealDisk(), (1, "billing", 0)
    store = await opened(tmp_path / "store")
    await store.put_topics([TopicCopy(1, "orders", 2, 1)])
    sender = Sender(store)
    await sender.send(10)
    [before] = await store.locks.take([LockRequest(key, "client", "session")])
    assert isinstance(before, LockGranted)
    take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    [after] = await store.locks.take([LockRequest((1, "billing", 1), "client", "session")])
    assert isinstance(after, LockGranted)
    store.locks.table.check_generation(key, before.generation, must_match=True)
    store.locks.table.check_generation((1, "billing", 1), after.generation, must_match=True)
    opening = store.describe().store_open_number
    await store.close()
    make_store(disk, tmp_path / "backup", tmp_path / "first", CLOCK, Randomness(2))
    first = await opened(tmp_path / "first")
    crashed_copy(tmp_path / "first", tmp_path / "crashed")
    for other in (first, await opened(tmp_path / "crashed")):
        assert other.describe().store_open_number > opening + 1_000
        for queue_id, generation in ((0, before.generation), (1, after.generation)):
            with pytest.raises(Fenced, match="take the lock again"):
                other.locks.table.check_generation((1, "billing", queue_id), generation, must_match=True)
        with pytest.raises(Fenced):
            await other.offsets.commit(1, "billing", {0: 20}, before.generation)
        data = b"%08d" % 9 * 50
        with pytest.raises(NotFound, match="Take a new producer id"):
            await other.append(1, 0, SealedBatch(data, crc32c(data), 2, 400, 9, 30))
        [again] = await other.locks.take([LockRequest(key, "client", "session", resume=True)])
        assert isinstance(again, LockGranted)
        await other.offsets.commit(1, "billing", {0: 2}, again.generation)
        [granted] = await other.locks.take([LockRequest((1, "billing", 1), "other client", "other session")])
        assert isinstance(granted, LockGranted)
        with pytest.raises(Fenced, match="take the lock again"):
            await other.offsets.commit(1, "billing", {1: 0}, after.generation)
        await other.close()


async def test_a_backup_ends_no_backup_of_another_store(tmp_path: Path) -> None:
    """An empty store with the name of a lost one, or one made of an older backup, needs another folder."""
    disk = RealDisk()
    store = await opened(tmp_path / "store")
    await store.put_topics([TopicCopy(1, "orders", 1, 1)])
    await Sender(store).send(30)
    take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    await store.close()
    empty = await opened(tmp_path / "empty", seed=3)
    with pytest.raises(Conflict, match="choose another folder"):
        take_backup(disk, tmp_path / "empty", tmp_path / "backup", CLOCK)
    await empty.close()
    make_store(disk, tmp_path / "backup", tmp_path / "restored", CLOCK, Randomness(2))


async def test_a_backup_begins_where_the_log_began_when_it_looked(tmp_path: Path) -> None:
    """Retention that deletes a segment between two reads leaves no hole in a backup."""
    disk = RealDisk()
    store = await opened(tmp_path / "store")
    await store.put_topics([TopicCopy(1, "orders", 1, 1)])
    await Sender(store).send(300)
    while not store.describe().log_begin_position:
        await CLOCK.sleep(0.01)
    await store.close()
    begin, plain = read_log_begin(disk, tmp_path / "store"), disk.list
    assert begin is not None
    # The log's begin moves first; a close may come before the file is deleted.
    first, second, *_ = (base for base in segment_bases(disk.list(tmp_path / "store")) if base >= begin.position)
    assert begin.position == first

    def listed(folder: Path) -> list[str]:
        if folder == tmp_path / "store" and segment_name(first) in plain(folder):
            write_log_begin(disk, folder, LogBegin(second, begin.queues))
            disk.remove(folder / segment_name(first))
        return plain(folder)

    taken = []

    def looked(folder: Path) -> list[str]:
        taken.append(folder)
        return listed(folder) if taken.count(tmp_path / "store") == 2 else plain(folder)

    disk.list = looked  # type: ignore[method-assign]
    take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    _, recovered = make_store(disk, tmp_path / "backup", tmp_path / "restored", CLOCK, Randomness(2))
    assert not recovered.catalog.damages


async def test_what_cannot_be_backed_up_or_restored_is_named(tmp_path: Path) -> None:
    """No store, another store's backup, a folder in use, a replica's, a changed file: all are refused."""
    disk, store_folder, backup = RealDisk(), tmp_path / "store", tmp_path / "backup"
    with pytest.raises(NotFound, match="is not a store"):
        take_backup(disk, store_folder, backup, CLOCK)
    store = await opened(store_folder)
    await store.put_topics([TopicCopy(1, "orders", 1, 1)])
    await Sender(store).send(30)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/else").write_text("x")
    with pytest.raises(Conflict, match="holds other files"):
        take_backup(disk, store_folder, tmp_path / "full", CLOCK)
    with pytest.raises(NotFound, match="holds no backup"):
        make_store(disk, tmp_path / "full", tmp_path / "new", CLOCK, Randomness())
    listed, _ = take_backup(disk, store_folder, backup, CLOCK)
    with pytest.raises(Conflict, match="is not empty"):
        make_store(disk, backup, store_folder, CLOCK, Randomness())
    await store.close()
    voters = Configuration((ReplicaId(1, "disk-1"), ReplicaId(2, "disk-2")))
    summary = LogSummary(configurations=(ConfigurationFrame(0, voters),))
    write_log_summary(disk, store_folder, StoredLogSummary(summary))
    with pytest.raises(Unsupported, match="replica of enode enode-0"):
        take_backup(disk, store_folder, backup, CLOCK)
    [first, *_] = sorted(backup.glob("*.seg"))
    whole = first.read_bytes()
    for changed in (whole[:500] + b"?" + whole[501:], whole[:1000]):
        first.write_bytes(changed)
        with pytest.raises(DataLoss):
            make_store(disk, backup, tmp_path / f"new-{len(changed)}", CLOCK, Randomness())
        assert not (tmp_path / f"new-{len(changed)}/identity").exists()
    (backup / "backup").write_bytes((backup / "backup").read_bytes().replace(b"enode-0", b"enode-1"))
    with pytest.raises(DataLoss, match="take another backup"):
        make_store(disk, backup, tmp_path / "new", CLOCK, Randomness())
    assert listed.enode == "enode-0"


async def test_a_new_file_system_is_an_empty_folder(tmp_path: Path) -> None:
    """The root folder of an ext4 volume counts as empty: it takes a backup, and a restored store.

    Incomplete files of an earlier attempt do not prevent a new one permanently.
    """
    disk = RealDisk()
    for name in ("backup", "restored"):
        (tmp_path / name / "lost+found").mkdir(parents=True)
    store = await opened(tmp_path / "store")
    await store.put_topics([TopicCopy(1, "orders", 1, 1)])
    await Sender(store).send(3)
    take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    (tmp_path / "backup" / (segment_name(1 << 20) + ".tmp")).write_bytes(b"half")
    take_backup(disk, tmp_path / "store", tmp_path / "backup", CLOCK)
    assert disk.list(tmp_path / "backup") == [segment_name(0), "backup", "lost+found"]
    make_store(disk, tmp_path / "backup", tmp_path / "restored", CLOCK, Randomness(2))
    await store.close()
    other = await opened(tmp_path / "restored")
    assert len(await batches(other)) == 3
    await other.close()

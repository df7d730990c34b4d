"""A disk that is full, slow or failing."""

import asyncio
import dataclasses
import errno
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ortoo.common.errors import NOT_ACCEPTED_FIELD, Overloaded, Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.disk.disk import Buffer, DiskSpace, RealDisk, RealFile, opening
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.segment import segment_name
from ortoo.enode.log.settings import FlushMode, StoreSettings
from ortoo.enode.observe.backlog import Backlogs
from ortoo.enode.observe.findings import EnodeFindings
from ortoo.enode.store.lock_table import LockRequest
from ortoo.verification.store.single_store import SingleStore, open_single_store

SETTINGS = StoreSettings(
    segment_bytes=32 << 10, headroom_bytes=64 << 10, retention_age_ms=0, disk_check_interval_ms=5, idle_mark_ms=1
)  # fmt: skip


class TroubledFile(RealFile):
    """A file whose disk can be made to fail."""

    disk: "TroubledDisk"
    writable = False

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor."""
        return self._descriptor >= 0

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Fail as configured."""
        if self.disk.write_error:
            raise OSError(self.disk.write_error, os.strerror(self.disk.write_error))
        return super().write(position, buffers)

    def sync_data(self) -> None:
        """Wait and fail as configured."""
        self.disk.syncs += 1
        self.disk.gate.wait(10)
        if self.disk.sync_error:
            raise OSError(self.disk.sync_error, os.strerror(self.disk.sync_error))
        super().sync_data()


class TroubledDisk(RealDisk):
    """A disk that fails on demand."""

    def __init__(self) -> None:
        """Create a healthy disk."""
        super().__init__()
        self.free = 1 << 40
        self.write_error = 0
        self.sync_error = 0
        self.open_error = 0
        self.create_error = 0
        self.folder_error = 0
        self.files: list[TroubledFile] = []
        self.syncs = 0
        self.gate = threading.Event()
        self.gate.set()

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> TroubledFile:
        """Open a file of this disk."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT | os.O_EXCL if create else 0)
        with opening(path):
            if number := self.open_error or (self.create_error if create else 0):
                raise OSError(number, os.strerror(number), str(path))
            file = TroubledFile(os.open(path, flags, 0o640), path)
        file.disk, file.writable = self, writable
        self.files.append(file)
        return file

    def sync_directory(self, folder: Path) -> None:
        """Fail as told."""
        with opening(folder):
            if self.folder_error:
                raise OSError(self.folder_error, os.strerror(self.folder_error), str(folder))
        super().sync_directory(folder)

    def descriptors(self) -> list[TroubledFile]:
        """The files that are open."""
        return [one for one in self.files if one.is_open]

    def writable(self) -> list[TroubledFile]:
        """Those of them that may be written."""
        return [one for one in self.descriptors() if one.writable]

    def space(self, folder: Path) -> DiskSpace:
        """The configured space."""
        return DiskSpace(self.free, 1 << 50)


def batch(data: bytes = b"x" * 1000) -> SealedBatch:
    """One message."""
    return SealedBatch(data, crc32c(data), 1, len(data))


async def opened(folder: Path, disk: RealDisk, settings: StoreSettings = SETTINGS) -> SingleStore:
    """A store with one topic."""
    store = await open_single_store(folder, settings=settings, disk=disk, clock=SystemClock(), randomness=Randomness(1))
    await store.put_topics([TopicCopy(1, "a", 4, 1)])
    return store


async def test_a_full_disk_refuses_sends_keeps_offsets_and_resumes_alone(tmp_path: Path) -> None:
    """E-220: sends are refused and not stored. Commits and reads continue; sends work again when there is space."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    disk.free = 80 << 10
    stored = 0
    with pytest.raises(Overloaded) as refused:
        while True:
            await store.append(1, 0, batch())
            stored += 1
    assert refused.value.retry_after_ms > 0
    description = store.describe()
    assert not description.writable
    assert "full" in description.reason
    assert store.describe_queues(1)[0].end_offset == stored
    for offset in range(300):
        await store.offsets.commit(1, "g", {0: offset})
    assert (await store.fetch(1, 0, 0)).batches
    disk.free = 1 << 40
    async with asyncio.timeout(60):
        while not store.describe().writable:
            await store.offsets.commit(1, "g", {0: 1})
    assert (await store.append(1, 0, batch())).first_offset == stored
    await store.close()


async def test_a_write_that_meets_a_full_disk_is_written_again(tmp_path: Path) -> None:
    """When reserved space is missing, accepted appends wait for space and are then acknowledged."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    disk.write_error = errno.ENOSPC
    waiting = asyncio.get_running_loop().create_task(store.append(1, 0, batch()))
    async with asyncio.timeout(60):
        while store.describe().writable:
            assert not (await store.fetch(1, 0, 0, wait_ms=1)).batches
    disk.write_error = 0
    async with asyncio.timeout(60):
        assert (await waiting).first_offset == 0
    assert (await store.fetch(1, 0, 0)).batches
    await store.close()


async def test_a_step_of_housekeeping_that_fails_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk fails the same step each second. The log has a line for it at intervals."""
    store = await opened(tmp_path, TroubledDisk())

    async def index_sealed() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.WARNING):
        assert [await store.engine.housekeeping._run_step(index_sealed) for _ in range(3)] == [False] * 3
    assert caplog.text.count("housekeeping_postponed") == 1
    await store.close()


async def test_a_lock_whose_grant_met_a_failing_disk_is_not_said_to_be_free(tmp_path: Path) -> None:
    """G2: the log may have it, and a next start would restore it, so its session must retry until it is freed."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    wish, freed = LockRequest((1, "g", 0), "owner", "session"), [((1, "g", 0), "session")]
    disk.sync_error = errno.EIO
    with pytest.raises(Unavailable):
        await store.locks.take([wish])
    with pytest.raises(Unavailable):
        await store.locks.release(freed)
    await store.close()
    store = await opened(tmp_path, RealDisk())
    assert await store.locks.release(freed) == [True]
    await store.close()


@pytest.mark.parametrize("where", ["write", "sync"])
async def test_a_failed_disk_is_never_a_success(tmp_path: Path, where: str) -> None:
    """After a failed write or fdatasync nothing is acknowledged until the store is opened again; reads continue."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    await store.append(1, 0, batch(b"before"))
    setattr(disk, f"{where}_error", errno.EIO)
    with pytest.raises(Unavailable, match="unknown"):
        await store.append(1, 0, batch(b"lost"))
    setattr(disk, f"{where}_error", 0)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await store.append(1, 0, batch(b"later"))
    with pytest.raises(Unavailable):
        await store.offsets.commit(1, "g", {0: 1})
    assert not store.describe().writable
    assert [one.batch.records for one in (await store.fetch(1, 0, 0)).batches] == [b"before"]
    await store.close()
    assert not (tmp_path / "clean").exists()
    store = await opened(tmp_path, RealDisk())
    assert (await store.fetch(1, 0, 0)).batches[0].batch.records == b"before"
    await store.append(1, 0, batch(b"after"))
    await store.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_no_free_descriptors_are_waited_out(tmp_path: Path, error: int) -> None:
    """While no file can be opened, old batches and sends are refused as retriable, and offsets are kept.

    The disk did not fail: when files can be opened, the store accepts messages without a restart.
    """
    disk = TroubledDisk()
    settings = dataclasses.replace(SETTINGS, recent_bytes=0)
    store = await opened(tmp_path / "store", disk, settings)
    for _ in range(60):
        await store.append(1, 0, batch())
    await store.close()
    store = await opened(tmp_path / "store", disk, settings)
    disk.open_error = error
    with pytest.raises(Overloaded, match="cannot be opened") as refused:
        await store.fetch(1, 0, 0)
    assert refused.value.retry_after_ms > 0
    stored = 60
    with pytest.raises(Overloaded, match="cannot be opened") as refused:
        for _ in range(100):
            await store.append(1, 0, batch())
            stored += 1
    assert (refused.value.field, refused.value.retry_after_ms > 0) == (NOT_ACCEPTED_FIELD, True)
    assert store.describe_queues(1)[0].end_offset == stored
    assert not store.engine.appender.failure
    assert "cannot be opened" in store.describe().reason
    (found,) = EnodeFindings(store, Backlogs(store, SystemClock()), SystemClock()).disk()
    assert (found.name, found.observed) == ("file descriptors exhausted", store.describe().reason)
    disk.open_error = 0
    async with asyncio.timeout(60):
        while not store.describe().writable:
            await store.offsets.commit(1, "g", {0: 1})
    assert (await store.append(1, 0, batch())).first_offset == stored
    assert (await store.fetch(1, 0, 0)).batches
    await store.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
async def test_a_disk_that_makes_no_file_is_told_of_and_waited_out(tmp_path: Path, error: int) -> None:
    """No free inodes, or no right to create: sends are refused, and health, route and doctor get the reason."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    disk.create_error = error
    stored = 0
    with pytest.raises((Overloaded, Unavailable)) as refused:
        for _ in range(100):
            await store.append(1, 0, batch())
            stored += 1
    assert refused.value.field == NOT_ACCEPTED_FIELD
    description = store.describe()
    assert (description.writable, os.strerror(error) in description.reason) == (False, True)
    (found,) = EnodeFindings(store, Backlogs(store, SystemClock()), SystemClock()).disk()
    assert description.reason in found.observed
    disk.create_error = 0
    async with asyncio.timeout(60):
        while not store.describe().writable:
            await store.offsets.commit(1, "g", {0: 1})
    assert (await store.append(1, 0, batch())).first_offset == stored
    await store.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_accepted_appends_wait_for_a_descriptor(tmp_path: Path, error: int) -> None:
    """A flush that cannot open its segment is done when it can, and acknowledged: the disk has not failed."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    store.engine.appender.active.stop_writing()
    disk.open_error = error
    waiting = asyncio.get_running_loop().create_task(store.append(1, 0, batch()))
    async with asyncio.timeout(60):
        while store.describe().writable:
            assert not (await store.fetch(1, 0, 0, wait_ms=1)).batches
    with pytest.raises(Overloaded, match="cannot be opened") as refused:
        await store.append(1, 0, batch())
    assert refused.value.field == NOT_ACCEPTED_FIELD
    disk.open_error = 0
    assert (await waiting).first_offset == 0
    assert (await store.append(1, 0, batch())).first_offset == 1
    assert store.describe().writable
    await store.close()


async def test_a_name_that_could_not_be_synced_is_not_given_twice(tmp_path: Path) -> None:
    """A new segment whose folder could not be synced is written when it can: the rename happened already."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    spare = await store.engine.spares.take(1, is_state=True)
    spare.place_at(1 << 20)
    disk.folder_error = errno.ENFILE
    with pytest.raises(Overloaded, match="cannot be opened"):
        spare.install()
    disk.folder_error = 0
    spare.install()
    spare.install()
    assert (tmp_path / segment_name(1 << 20)).exists()
    assert spare.source is None
    (tmp_path / segment_name(1 << 20)).unlink()
    await store.close()


async def test_only_segments_that_grow_are_open_for_writing(tmp_path: Path) -> None:
    """Sealed ones are opened to be read, and at most as many as the disk allows; none is open when the store is."""
    disk = TroubledDisk()
    disk.read_files_max = 2
    store = await opened(tmp_path, disk, dataclasses.replace(SETTINGS, recent_bytes=0))
    stored = 0
    while len(store.engine.catalog.segments) < 12:
        await store.append(1, 0, batch())
        stored += 1
    offset, files = 0, store.engine.catalog.files
    while offset < stored:
        offset = (await store.fetch(1, 0, offset, bytes_max=1)).next_offset
        assert files.count <= 2 + len(disk.writable())
    assert files.evicted >= 9
    async with asyncio.timeout(60):
        while len(store.engine.catalog.contents) < len(store.engine.catalog.segments) - 1:
            await store.fetch(1, 0, stored, wait_ms=1)
    assert len(disk.writable()) <= 4, "the active segment, a spare one, the mark, a small file during its write"
    await store.close()
    assert files.count == 0
    assert disk.descriptors() == []


async def test_a_full_segment_is_closed_for_writing_before_it_is_indexed(tmp_path: Path) -> None:
    """Where no index file can be made for a while, the segments that wait for one keep no descriptor."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    await store.engine.housekeeping.stop()
    while len(store.engine.catalog.segments) < 8:
        await store.append(1, 0, batch())
    assert len(disk.writable()) <= 2, "the active segment, a spare one"
    await store.close()


async def test_a_cancelled_append_is_still_stored_and_others_go_on(tmp_path: Path) -> None:
    """An accepted append continues without its caller, because positions are already assigned."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    disk.gate.clear()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(store.append(1, 0, batch(b"%d" % number))) for number in range(3)]
    start = store.describe().appended_position
    while store.describe().appended_position < start + 3 * 192:
        await asyncio.wait(tasks, timeout=0.001)
    tasks[1].cancel()
    disk.gate.set()
    await asyncio.wait(tasks)
    assert tasks[1].cancelled()
    found = (await store.fetch(1, 0, 0)).batches
    assert [one.batch.records for one in found] == [b"0", b"1", b"2"]
    await store.close()


async def test_async_appends_answer_at_once_and_are_visible_when_durable(tmp_path: Path) -> None:
    """E-215: mode async does not wait for the disk, reports this, and shows readers only durable data."""
    disk = TroubledDisk()
    settings = StoreSettings(segment_bytes=32 << 10, headroom_bytes=0, flush_interval_ms=5)
    store = await opened(tmp_path, disk, settings)
    disk.gate.clear()
    answer = await store.append(1, 0, batch(), flush_mode=FlushMode.ASYNC)
    assert answer.flush_mode is FlushMode.ASYNC
    assert store.describe_queues(1)[0].end_offset == 0
    disk.gate.set()
    assert (await store.fetch(1, 0, 0, wait_ms=5000)).batches[0].first_offset == 0
    await store.append(1, 1, batch(), flush_mode=FlushMode.ASYNC)
    later = await store.append(1, 0, batch())
    assert later.flush_mode is FlushMode.SYNC
    assert store.describe_queues(1)[1].end_offset == 1
    await store.close()


async def test_too_much_waiting_is_refused(tmp_path: Path) -> None:
    """Memory for appends that wait for the disk is limited."""
    disk = TroubledDisk()
    settings = StoreSettings(segment_bytes=1 << 20, headroom_bytes=0, pending_bytes_max=10_000)
    store = await opened(tmp_path, disk, settings)
    disk.gate.clear()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(store.append(1, 0, batch())) for _ in range(20)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    disk.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [one for one in results if isinstance(one, Overloaded)]
    assert 10 <= len(refused) < 15
    assert store.describe_queues(1)[0].end_offset == 20 - len(refused)
    await store.close()


async def test_an_idle_store_says_how_far_it_is_durable(tmp_path: Path) -> None:
    """After a short idle time one mark is written, and no further ones."""
    disk = TroubledDisk()
    store = await opened(tmp_path, disk)
    await store.append(1, 0, batch())
    position = store.describe().durable_position
    async with asyncio.timeout(60):
        while store.describe().durable_position == position:
            await store.fetch(1, 0, 1, wait_ms=2)
    flushes = store.describe().counters["flushes"]
    await store.fetch(1, 0, 1, wait_ms=50)
    assert store.describe().counters["flushes"] == flushes
    await store.close()


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write is followed by another call; more buffers than one call takes are split."""
    file = RealDisk().open(tmp_path / "file", create=True)
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: real(fd, [b"".join(buffers)[:7]], at))
    assert file.write(3, [b"hello ", b"wide ", b"world"]) == 16
    assert file.read(3, 100) == b"hello wide world"
    monkeypatch.undo()
    assert file.write(0, [b"%04d" % number for number in range(5000)]) == 20_000
    assert file.read(4 * 4999, 10) == b"4999"
    file.close()

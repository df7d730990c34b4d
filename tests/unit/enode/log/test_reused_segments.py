"""Spare segments that are the files of deleted segments."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.segment import Segment, remove_below
from ortoo.enode.log.spares import REUSED_MAX, SpareSegments
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/store")
SEGMENT_BYTES = 1 << 13


class Log:
    """Deleted segments and the spares of one folder."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.memory = MemoryDisk()
        self.disk = disk or FaultyDisk(self.memory)
        self.disk.make_folder(FOLDER)
        self.files = SegmentFiles(self.disk)
        self.spares = SpareSegments(self.files, FOLDER, DiskWork(asyncio.get_running_loop()), SEGMENT_BYTES, 0)
        self.end = 0

    def deleted(self, length: int = SEGMENT_BYTES, *, is_reusable: bool = True) -> Segment:
        """A full segment with `length` bytes, which retention has just forgotten."""
        source = FOLDER / f"new-{self.end}.spare"
        one = Segment(self.files, FOLDER, 0, length, source=source, is_reusable=is_reusable)
        one.create()
        one.place_at(self.end)
        one.install()
        one.writer.write(0, [b"old" * (length // 3)])
        one.writer.sync_data()
        self.end += length
        one.end = self.end
        one.retire()
        return one

    def names(self) -> list[str]:
        """The files left when the files of deleted segments are removed."""
        remove_below(self.disk, FOLDER, self.end)
        return self.disk.list(FOLDER)


@pytest.fixture
async def log() -> Log:
    """An empty one on a disk in memory."""
    return Log()


async def test_a_deleted_segment_becomes_a_later_one(log: Log) -> None:
    """No file is made: the spare has the old file's bytes and its whole size, and the log begins at its begin."""
    old = log.deleted(SEGMENT_BYTES - 640)
    inode = log.disk.inode(old.path)
    log.spares.reuse([old])
    assert log.names() == ["000001.spare"]
    assert await log.spares.prepare()
    spare = await log.spares.take(100, is_state=False)
    assert spare.is_reused
    assert spare.is_reusable
    assert spare.limit == spare.size_bytes() == SEGMENT_BYTES
    assert spare.read(0, 6) == b"oldold"
    spare.place_at(1 << 20)
    spare.install()
    spare.writer.write(0, [b"new"])
    assert log.disk.list(FOLDER) == [spare.path.name] == [f"{1 << 20:020}.seg"]
    assert log.disk.inode(spare.path) == inode
    assert spare.read(1 << 20, 6) == b"newold"


async def test_a_segment_may_be_reused_again(log: Log) -> None:
    """A spare of zeros and a reused one are both written by this process."""
    log.spares.reuse([log.deleted()])
    spare = await log.spares.take(100, is_state=False)
    spare.place_at(log.end)
    spare.install()
    log.end += SEGMENT_BYTES
    spare.end = log.end
    spare.retire()
    log.spares.reuse([spare])
    assert (await log.spares.take(100, is_state=False)).is_reused


async def test_few_segments_are_kept(log: Log) -> None:
    """The others are removed, and those that are used make room for others."""
    log.spares.reuse([log.deleted() for _ in range(REUSED_MAX + 2)])
    assert len(log.names()) == REUSED_MAX
    log.spares.reuse([log.deleted()])
    assert len(log.names()) == REUSED_MAX
    for _ in range(2):
        (await log.spares.take(100, is_state=False)).retire()
    log.spares.reuse([log.deleted() for _ in range(3)])
    assert len(log.names()) == REUSED_MAX + 2


@pytest.mark.parametrize(
    ("length", "is_kept"),
    [
        (SEGMENT_BYTES * 7 // 8 - 64, False),
        (SEGMENT_BYTES * 7 // 8, True),
        (SEGMENT_BYTES, True),
        (SEGMENT_BYTES + 64, False),
    ],
)
async def test_a_segment_of_another_size_is_removed(log: Log, length: int, *, is_kept: bool) -> None:
    """A short one needs new blocks, and a longer one would keep its blocks where no segment uses them."""
    log.spares.reuse([log.deleted(length)])
    assert log.names() == ["000001.spare"] * is_kept


async def test_a_segment_that_may_not_be_reused_is_removed(log: Log) -> None:
    """A body in it resembles a frame, another process wrote it, or it has not ended."""
    active = log.deleted()
    active.end = None
    log.spares.reuse([log.deleted(is_reusable=False), active])
    assert log.names() == []


@pytest.mark.parametrize("is_of_the_store", [True, False])
async def test_a_segment_with_a_reader_is_removed(log: Log, *, is_of_the_store: bool) -> None:
    """The reader reads the old bytes to the end. The reader is one of this store, or a backup."""
    old, other = log.deleted(), log.deleted()
    file = old._reading.begin() if is_of_the_store else log.disk.open(old.path, writable=False)
    log.spares.reuse([old, other])
    assert log.names() == ["000002.spare"]
    spare = await log.spares.take(100, is_state=False)
    spare.writer.write(0, [b"new"])
    assert file.read(0, 6) == b"oldold"


def no_rename(disk: FaultyDisk) -> None:
    """Let no file get another name."""

    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "broken", str(source))

    disk.inner.rename = refuse  # type: ignore[method-assign]


def no_descriptor(disk: FaultyDisk) -> None:
    """Let no file be opened."""
    disk.open_error = errno.EMFILE


FAULTS: dict[str, Callable[[FaultyDisk], None]] = {
    "rename": no_rename,
    "open": no_descriptor,
    "allocate": lambda disk: disk.full_after(0),
    "sync": lambda disk: disk.fail_sync(),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_error_of_the_disk_costs_one_file_and_nothing_else(fault: str) -> None:
    """Neither the spare nor the segment is left, retention continues, and the next segment is a new file."""
    disk = FaultyDisk(MemoryDisk())
    log = Log(disk)
    old = log.deleted(SEGMENT_BYTES - 64)
    rename = disk.inner.rename
    FAULTS[fault](disk)
    log.spares.reuse([old])
    disk.heal()
    disk.inner.rename = rename  # type: ignore[method-assign]
    assert log.names() == []
    assert log.files.count == 0
    assert not (await log.spares.take(100, is_state=False)).is_reused


async def test_reused_spares_that_no_segment_needs_are_removed(log: Log) -> None:
    """They hold deleted messages. The next but one run removes them, and leaves newer ones and those of zeros."""
    await log.spares.prepare()
    log.spares.reuse([log.deleted() for _ in range(2)])
    await log.spares.drop_unused()
    log.spares.reuse([log.deleted()])
    assert log.names() == ["000001.spare", "000002.spare", "000003.spare", "000004.spare"]
    await log.spares.drop_unused()
    assert log.names() == ["000001.spare", "000004.spare"]
    assert log.files.count == 2
    await log.spares.drop_unused()
    await log.spares.drop_unused()
    assert log.names() == ["000001.spare"]
    assert not (await log.spares.take(100, is_state=False)).is_reused


async def test_a_used_spare_is_not_removed(log: Log) -> None:
    """It is a segment of the log when the next run of retention looks for it."""
    log.spares.reuse([log.deleted()])
    await log.spares.drop_unused()
    taken = await log.spares.take(100, is_state=False)
    await log.spares.drop_unused()
    assert log.names() == [taken.path.name]
    assert not taken.is_retired


async def test_reused_spares_are_removed_by_the_end(log: Log) -> None:
    """A store that stops leaves no deleted messages."""
    log.spares.reuse([log.deleted() for _ in range(2)])
    log.spares.close()
    assert log.names() == []

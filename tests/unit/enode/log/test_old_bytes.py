"""Old bytes in the files of later segments, and the files that are kept for them."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import DiskSpace, RealDisk
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log import scan
from ortoo.enode.log.frame import HEADER_BYTES, MAGIC_BYTES, FrameHeader, FrameKind, decode_header, may_resemble_frame
from ortoo.enode.log.segment import Segment, segment_name
from ortoo.enode.log.spares import SpareSegments
from ortoo.enode.recovery.segment_changes import truncate_files
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from ortoo.testing.disks.memory_disk import MemoryDisk
from tests.contract.one_store import SETTINGS, OneStore

FOLDER = Path("/store")
SEGMENT_BYTES = 4096
HEADROOM_BYTES = 1000

F_GETSIG = 11
"""The command of Linux that returns the signal for a broken lease."""


def mark(position: int) -> bytes:
    """A whole frame of this position."""
    return FrameHeader(kind=FrameKind.MARK, position=position, leader_epoch=1).encoded()


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk with the store's folder."""
    made = MemoryDisk()
    made.make_folder(FOLDER)
    return made


@pytest.fixture
def spares(disk: MemoryDisk) -> SpareSegments:
    """The spares of a store without segments."""
    work: Any = None
    return SpareSegments(SegmentFiles(disk), FOLDER, work, SEGMENT_BYTES, HEADROOM_BYTES)


def deleted(disk: MemoryDisk, base: int, size_bytes: int = SEGMENT_BYTES) -> Segment:
    """A full segment that retention has forgotten."""
    segment = Segment(SegmentFiles(disk), FOLDER, base, base + size_bytes, is_reusable=True)
    file = disk.open(segment.path, create=True)
    file.write(0, [b"\x01" * size_bytes])
    file.sync_data()
    file.close()
    segment.end = base + size_bytes
    segment.retire()
    return segment


def test_what_lies_behind_a_lost_page_of_a_truncated_log_never_returns(disk: MemoryDisk) -> None:
    """The old frame in the place of the lost page is not counted as truncated, but its zeros are synced."""
    file = disk.open(FOLDER / segment_name(SEGMENT_BYTES), create=True)
    file.write(0, [mark(SEGMENT_BYTES), mark(0), mark(SEGMENT_BYTES + 2 * HEADER_BYTES)])
    file.sync_data()
    disk.sync_directory(FOLDER)
    truncate_files(disk, FOLDER, SEGMENT_BYTES + HEADER_BYTES)
    left = disk.after_crash(Randomness(1), LOSE_UNSYNCED).open(FOLDER / segment_name(SEGMENT_BYTES), writable=False)
    assert left.read(0, HEADER_BYTES) == mark(SEGMENT_BYTES)
    assert not any(left.read(HEADER_BYTES, 2 * HEADER_BYTES))


def test_old_headers_are_passed_over_without_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start after a crash finds very many old frames in a reused file; only the first one is decoded."""
    data = mark(1024) + b"".join(mark(at) for at in range(0, 100 * HEADER_BYTES, HEADER_BYTES))
    last = 1024 + len(data)
    data += mark(last)
    decoded: list[int] = []

    def counted(header: bytes, position: int) -> FrameHeader:
        decoded.append(position)
        return decode_header(header, position)

    monkeypatch.setattr(scan, "decode_header", counted)
    found = list(scan.walk(lambda at, length: data[at - 1024 : at - 1024 + length], 1024, 1024 + len(data)))
    assert [one.position for one in found] == [1024, 1024 + HEADER_BYTES, last]
    assert isinstance(found[1], scan.Hole)
    assert "stale bytes" in found[1].reason
    assert decoded == [1024, 1024 + HEADER_BYTES, last]


@pytest.mark.parametrize("places", [1, 1 << 15])
@pytest.mark.parametrize("tail", [b"", b"O", b"ORT", b"\x00ORTO", bytes(64) + b"ORTO", b"OORTO" * 30])
def test_a_body_resembles_a_frame_if_the_magic_number_lies_at_a_place_of_a_frame(places: int, tail: bytes) -> None:
    """Very many letters O, as in long texts, are no magic number, and they hide none."""
    body = (b"O" + bytes(63)) * places + tail
    assert may_resemble_frame(body) is any(body.startswith(MAGIC_BYTES, at) for at in range(0, len(body), 64))


async def test_segments_without_frames_become_spares_again() -> None:
    """When a leader steps down, the next leader's frames use the files of the frames that it dropped."""
    one = OneStore()
    store = await one.open()
    appender, spares = store.engine.appender, store.engine.spares
    await one.append(b"x" * 1000)
    for _ in range(3):
        appender.append_mark()
        placed = [await spares.take(100, is_state=False) for _ in range(2)]
        for spare in placed:
            appender.end_segment(spare)
            appender.append_mark()
        appender.drop_unsubmitted("another replica leads")
        again = [await spares.take(100, is_state=False) for _ in range(2)]
        assert set(again) == set(placed)
        for spare in again:
            assert (spare.base, spare.limit, spare.end) == (0, SETTINGS.segment_bytes, None)
            spares.put_back(spare)
    await one.append(b"y" * 1000)
    await store.close()
    assert not [name for name in one.disk.list(FOLDER) if name.endswith(".spare")]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_nearly_full_disk_gets_the_space_of_deleted_segments(
    disk: MemoryDisk, spares: SpareSegments, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """The reserved space must be free again before messages are accepted; then the disk is no longer short of it."""
    free_bytes = SEGMENT_BYTES + HEADROOM_BYTES - is_full
    monkeypatch.setattr(disk, "space", lambda _: DiskSpace(free_bytes, 1 << 30))
    segment = deleted(disk, 0)
    spares.is_short = True
    spares.reuse([segment])
    assert disk.list(FOLDER) == [segment.path.name if is_full else "000001.spare"]
    assert spares.is_short is is_full


@pytest.fixture
def urgent() -> Iterator[SimpleQueue[int]]:
    """Gets an item when another caller wants to open a file with a lease."""
    signals = SimpleQueue[int]()  # a signal handler may use it
    before = signal.signal(signal.SIGURG, lambda number, _: signals.put(number))
    yield signals
    signal.signal(signal.SIGURG, before)


def test_a_reader_that_waits_for_the_lease_is_noticed(
    tmp_path: Path, urgent: SimpleQueue[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found the file by its earlier name and opens it while the disk looks for readers."""
    path = tmp_path / "000001.spare"
    path.write_bytes(b"old")
    disk = RealDisk()
    if disk.is_shared(path):
        pytest.skip("NOT CHECKED, this file system has no leases; run the test in a folder on ext4, XFS or tmpfs")
    opened: list[int] = []
    reader = threading.Thread(target=lambda: opened.append(os.open(path, os.O_RDONLY)))
    control = fcntl.fcntl

    def reading(descriptor: int, command: int, argument: int) -> int:
        if argument != fcntl.F_UNLCK or reader.ident is not None:
            return control(descriptor, command, argument)
        reader.start()
        urgent.get()
        result = control(descriptor, command, argument)
        reader.join()
        return result

    monkeypatch.setattr(fcntl, "fcntl", reading)
    assert disk.is_shared(path)
    os.close(opened.pop())
    assert not disk.is_shared(path)


def test_each_lease_has_a_signal_that_ends_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a lease resets the choice to SIGIO, which ends a process without a handler."""
    path = tmp_path / "000001.spare"
    path.write_bytes(b"old")
    disk, control, signals = RealDisk(), fcntl.fcntl, list[int]()
    if disk.is_shared(path):
        pytest.skip("NOT CHECKED, this file system has no leases; run the test in a folder on ext4, XFS or tmpfs")

    def noting(descriptor: int, command: int, argument: int) -> int:
        if argument == fcntl.F_WRLCK:
            signals.append(control(descriptor, F_GETSIG))
        return control(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", noting)
    assert not disk.is_shared(path)
    assert signals
    assert set(signals) == {signal.SIGURG}

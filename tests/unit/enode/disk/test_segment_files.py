"""The cache of open segment files is bounded, and never closes a file in use."""

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.enode.disk.disk import NoDescriptor, RealDisk
from ortoo.enode.disk.segment_files import ReadFile, SegmentFiles
from ortoo.testing.disks.faulty_disk import FaultyDisk, FaultyFile
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/log")
FILES = 6


class WatchedFile(FaultyFile):
    """A file that is counted by its disk while it is open."""

    def __init__(self, disk: "WatchedDisk", path: Path, *, writable: bool) -> None:
        super().__init__(disk, disk.inner.open(path, writable=writable), path)
        self.watched = disk
        self.writable = writable
        disk.open_files.append(self)

    def close(self) -> None:
        self.watched.open_files.remove(self)
        super().close()


class WatchedDisk(FaultyDisk):
    """A disk that knows which of its files are open; it holds `FILES` files, each with its number in it."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.open_files: list[WatchedFile] = []
        self.inner.make_folder(FOLDER)
        for number in range(FILES):
            file = self.inner.open(FOLDER / str(number), create=True)
            file.write(0, [b"%d" % number])

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> WatchedFile:
        self._need_descriptor(path)
        return WatchedFile(self, path, writable=writable)

    def paths(self) -> list[str]:
        """The names of the open files."""
        return sorted(one.path.name for one in self.open_files)


def files_of(disk: WatchedDisk, most: int) -> tuple[SegmentFiles, Sequence[ReadFile]]:
    """A cache for `most` open files, and all files of the disk."""
    files = SegmentFiles(disk, most)
    return files, [files.file(FOLDER / str(number)) for number in range(FILES)]


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(["read", "begin", "end", "retire", "close"]), st.integers(0, FILES - 1)), max_size=60
    ),
)
def test_the_number_of_open_files_is_bounded_and_none_in_use_is_closed(most: int, steps: list[tuple[str, int]]) -> None:
    """For any order of calls: the file that was read last stays open, and a retired file does not."""
    disk = WatchedDisk()
    files, known = files_of(disk, most)
    in_use: list[int] = []
    recent: list[int] = []
    retired = set[int]()
    for step, number in steps:
        is_room = number in in_use or len(set(in_use)) < most
        if step == "read" and is_room:
            assert known[number].read(0, 9) == b"%d" % number
        elif step == "begin" and is_room:
            assert known[number].begin().read(0, 9) == b"%d" % number
            in_use.append(number)
        elif step == "end" and in_use:
            number = in_use.pop(0)
            known[number].end()
        elif step == "retire":
            known[number].retire()
            retired.add(number)
        elif step == "close":
            files.close()
            recent = []
        if step in ("read", "end"):
            recent = [one for one in recent if one != number] + [number]
        idle = [one for one in recent if one not in in_use and one not in retired]
        open_now = {int(name) for name in disk.paths()}
        assert len(disk.open_files) == files.count <= most
        assert set(in_use) <= open_now
        assert open_now - set(in_use) <= set(idle)
        assert [one.is_open for one in known] == [number in open_now for number in range(FILES)]
        assert all(not one.writable for one in disk.open_files)
    while in_use:
        known[in_use.pop()].end()
    files.close()
    assert disk.open_files == []


def test_the_longest_unread_file_is_closed_first() -> None:
    """A file that was read again stays open."""
    disk = WatchedDisk()
    files, known = files_of(disk, 3)
    for number in (0, 1, 2, 0, 3):
        known[number].read(0, 1)
    assert disk.paths() == ["0", "2", "3"]
    assert (files.opened, files.evicted) == (4, 1)


def test_readers_in_many_threads_get_the_bytes_of_their_file(tmp_path: Path) -> None:
    """The next file at once gets the number of a closed descriptor, so no reader may still use it."""
    paths = [tmp_path / str(number) for number in range(30)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%04d" % number * 2000)
    files = SegmentFiles(RealDisk(), 3)
    known = [files.file(path) for path in paths]
    wrong: list[tuple[int, bytes]] = []

    def read(seed: int) -> None:
        for step in range(1500):
            number = (seed * 7 + step * (seed + 3)) % len(known)
            data = known[number].read(4 * (step % 1000), 8)
            if data != b"%04d" % number * 2:
                wrong.append((number, data))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
    assert files.count <= 3
    assert files.evicted > 1000
    files.close()
    assert files.count == 0


def test_a_reader_waits_for_a_place_and_two_of_one_file_share_one() -> None:
    """While all places are in use, a third file is not opened. It is opened when a place is free."""
    disk = WatchedDisk()
    _, known = files_of(disk, 2)
    known[0].begin()
    known[1].begin()
    known[1].begin()
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(known[2].read(0, 1)))
    reader.start()
    known[1].end()
    assert disk.paths() == ["0", "1"]
    known[1].end()
    reader.join(10)
    assert found == [b"2"]
    assert disk.paths() == ["0", "2"]
    known[0].end()


def test_without_a_descriptor_the_cache_gives_up_one_of_its_own() -> None:
    """Without free descriptors every file is still read while one is open and unused here. Otherwise it is refused."""
    disk = WatchedDisk()
    _, known = files_of(disk, 4)
    known[0].read(0, 1)

    def open_one(path: Path, *, create: bool = False, writable: bool = True) -> WatchedFile:
        disk.open_error = errno.EMFILE if disk.open_files else 0
        return WatchedDisk.open(disk, path, create=create, writable=writable)

    disk.open = open_one  # type: ignore[method-assign]
    for number in range(1, FILES):
        assert known[number].read(0, 9) == b"%d" % number
    assert len(disk.open_files) == 1
    known[FILES - 1].begin()
    with pytest.raises(NoDescriptor, match=r"/log/0 cannot be opened: all \d+ file descriptors") as refused:
        known[0].read(0, 1)
    assert refused.value.retriable
    assert refused.value.retry_after_ms > 0
    known[FILES - 1].end()
    assert known[0].read(0, 1) == b"0"


def test_a_file_that_is_missing_takes_no_place() -> None:
    """The error is that of the disk, and other files are read afterwards."""
    disk = WatchedDisk()
    files, known = files_of(disk, 1)
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            files.file(FOLDER / "none").read(0, 1)
    assert known[0].read(0, 1) == b"0"
    assert files.count == 1

"""One suite for every disk: the real one, the one in memory, and the faulty one while it has no faults."""

import contextlib
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict
from ortoo.enode.disk.disk import BUFFERS_PER_WRITE_MAX, Disk, NoDescriptor, RealDisk
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk

DISKS: dict[str, Callable[[], Disk]] = {
    "real": RealDisk,
    "memory": MemoryDisk,
    "faulty around real": lambda: FaultyDisk(RealDisk()),
    "faulty around memory": lambda: FaultyDisk(MemoryDisk()),
}


@pytest.fixture(params=list(DISKS))
def disk(request: pytest.FixtureRequest) -> Disk:
    """Each disk in turn."""
    return DISKS[request.param]()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    """A folder on it."""
    path = tmp_path / "a" / "store"
    disk.make_folder(path)
    return path


def test_bytes_are_read_back_where_they_were_written(disk: Disk, folder: Path) -> None:
    """Buffers follow one another from the position. A skipped range is zeros. Reading stops at the end."""
    file = disk.open(folder / "f", create=True)
    assert file.write(10, [b"abc", bytearray(b"de"), memoryview(b"fgh")]) == 8
    assert file.size_bytes() == 18
    assert file.read(0, 100) == bytes(10) + b"abcdefgh"
    assert file.read(12, 3) == b"cde"
    assert file.read(18, 5) == b""
    assert file.read(100, 5) == b""
    assert file.write(11, [b"XY"]) == 2
    assert file.read(10, 8) == b"aXYdefgh"
    assert file.write(0, []) == 0
    file.sync_data()
    file.close()
    file.close()


def test_zeros_behind_the_stored_bytes_change_nothing(disk: Disk, folder: Path) -> None:
    """They read as before, and the file does not grow."""
    file = disk.open(folder / "f", create=True)
    file.allocate(10_000)
    for position in (0, 6_000, 9_994):
        file.write(position, [b"abcdef"])
        file.zero_ahead(position + 6)
    assert file.size_bytes() == 10_000
    assert file.read(0, 10_000).replace(b"\0", b"") == b"abcdef" * 3
    file.close()


def test_zeros_replace_stray_bytes_behind_the_stored_ones(disk: Disk, folder: Path) -> None:
    """A bit that was flipped behind the end of a log is overwritten, and the bytes before the zeros stay."""
    file = disk.open(folder / "f", create=True)
    file.allocate(10_000)
    file.write(0, [b"abcdef"])
    file.write(5_000, [b"\x04"])
    file.zero_ahead(6)
    assert file.read(0, 10_000) == b"abcdef" + bytes(9_994)
    file.close()


def test_reading_ahead_changes_nothing(disk: Disk, folder: Path) -> None:
    """It may name missing bytes. Bytes are read as they were written."""
    file = disk.open(folder / "f", create=True)
    file.write(0, [b"abcdef"])
    for position, length in ((0, 6), (3, 100), (50, 1)):
        file.read_ahead(position, length)
    assert (file.read(0, 100), file.size_bytes()) == (b"abcdef", 6)
    file.close()


def test_more_buffers_than_one_call_takes_are_written(disk: Disk, folder: Path) -> None:
    """The system's limit on buffers is not the caller's business."""
    count = 2 * BUFFERS_PER_WRITE_MAX + 3
    file = disk.open(folder / "f", create=True)
    assert file.write(5, [b"%04d" % number for number in range(count)]) == 4 * count
    assert file.read(5, 4 * count) == b"".join(b"%04d" % number for number in range(count))
    file.close()


def test_sizes_change_as_told(disk: Disk, folder: Path) -> None:
    """Allocating grows by zeros and never shrinks or overwrites; truncating cuts, and extends by zeros."""
    file = disk.open(folder / "f", create=True)
    file.write(0, [b"abcdef"])
    file.allocate(4)
    assert file.size_bytes() == 6
    file.allocate(10_000)
    assert file.size_bytes() == 10_000
    assert file.read(0, 8) == b"abcdef\0\0"
    file.truncate(3)
    assert file.read(0, 8) == b"abc"
    file.truncate(5)
    assert file.read(0, 8) == b"abc\0\0"
    file.close()


def test_names_are_made_once_and_missed_by_name(disk: Disk, folder: Path) -> None:
    """Creating what exists, and opening, renaming or removing what does not, are the system's own errors."""
    disk.open(folder / "f", create=True).close()
    with pytest.raises(FileExistsError):
        disk.open(folder / "f", create=True)
    for attempt in (
        lambda: disk.open(folder / "missing"),
        lambda: disk.open(folder / "missing", writable=False),
        lambda: disk.open(folder / "no" / "f", create=True),
        lambda: disk.rename(folder / "missing", folder / "g"),
        lambda: disk.remove(folder / "missing"),
        lambda: disk.sync_directory(folder / "no"),
        lambda: disk.lock(folder / "no"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()


def test_listing_is_sorted_and_empty_for_what_is_not_there(disk: Disk, folder: Path) -> None:
    """Names of files and folders, in order."""
    for name in ("b", "a", "c"):
        disk.open(folder / name, create=True).close()
    disk.make_folder(folder / "aa")
    disk.make_folder(folder / "aa")
    assert disk.list(folder) == ["a", "aa", "b", "c"]
    assert disk.list(folder / "no") == []
    disk.remove(folder / "b")
    assert disk.list(folder) == ["a", "aa", "c"]


def test_renaming_replaces_in_one_step(disk: Disk, folder: Path) -> None:
    """The target's old bytes are gone, the source's name too, and both open files stay usable."""
    new, old = disk.open(folder / "new", create=True), disk.open(folder / "old", create=True)
    new.write(0, [b"new"])
    old.write(0, [b"old"])
    disk.rename(folder / "new", folder / "old")
    disk.sync_directory(folder)
    assert disk.list(folder) == ["old"]
    again = disk.open(folder / "old", writable=False)
    assert again.read(0, 9) == b"new"
    assert old.read(0, 9) == b"old"
    new.write(3, [b"er"])
    assert again.read(0, 9) == b"newer"
    for file in (new, old, again):
        file.close()


def test_an_open_file_outlives_its_name(disk: Disk, folder: Path) -> None:
    """Readers of a removed file read on."""
    file = disk.open(folder / "f", create=True)
    file.write(0, [b"abc"])
    disk.remove(folder / "f")
    assert file.read(0, 3) == b"abc"
    file.close()
    disk.open(folder / "f", create=True).close()


def test_closed_and_read_only_files_refuse(disk: Disk, folder: Path) -> None:
    """A forbidden operation raises OSError and is never ignored."""
    disk.open(folder / "f", create=True).close()
    file = disk.open(folder / "f", writable=False)
    with pytest.raises(OSError, match=r"."):
        file.write(0, [b"x"])
    file.close()
    with pytest.raises(OSError, match=r"."):
        file.read(0, 1)


@pytest.mark.parametrize("writable", [True, False])
def test_a_file_is_shared_while_it_is_open(disk: Disk, folder: Path, *, writable: bool) -> None:
    """Each descriptor counts, under whatever name the file was opened."""
    disk.open(folder / "f", create=True).close()
    assert not disk.is_shared(folder / "f")
    first, second = disk.open(folder / "f", writable=writable), disk.open(folder / "f", writable=writable)
    disk.rename(folder / "f", folder / "g")
    disk.open(folder / "f", create=True).close()
    for file in (first, second):
        assert disk.is_shared(folder / "g")
        assert not disk.is_shared(folder / "f")
        file.close()
        file.close()
    assert not disk.is_shared(folder / "g")


def test_a_missing_file_is_not_called_unshared(disk: Disk, folder: Path) -> None:
    """The question is refused, as by every call with a missing name."""
    with pytest.raises(FileNotFoundError):
        disk.is_shared(folder / "missing")


def test_a_file_with_a_second_name_is_shared(tmp_path: Path) -> None:
    """A hard link is a backup that a later write would change."""
    disk = RealDisk()
    (tmp_path / "f").write_bytes(b"stored")
    os.link(tmp_path / "f", tmp_path / "backup")
    assert disk.is_shared(tmp_path / "f")
    os.remove(tmp_path / "backup")
    assert not disk.is_shared(tmp_path / "f")


@pytest.mark.parametrize("mode", ["rb", "r+b"])
def test_a_file_that_another_process_has_open_is_shared(mode: str, tmp_path: Path) -> None:
    """A program that copies the file sees one version of it."""
    (tmp_path / "f").write_bytes(b"stored")
    code = f"file = open({str(tmp_path / 'f')!r}, {mode!r}); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        assert RealDisk().is_shared(tmp_path / "f")
        process.stdin.close()
        process.wait()
    assert not RealDisk().is_shared(tmp_path / "f")


def test_a_file_may_be_opened_at_the_moment_of_the_question(tmp_path: Path) -> None:
    """Neither side fails: an open that ends the lease sends this process a signal that does not end it."""
    path, disk = tmp_path / "f", RealDisk()
    path.write_bytes(b"stored")
    done = threading.Event()
    opened: list[bool] = []

    def read() -> None:
        while not done.is_set():
            with contextlib.closing(disk.open(path, writable=False)) as file:
                opened.append(file.read(0, 9) == b"stored")

    thread = threading.Thread(target=read)
    code = f"for _ in range(20_000):\n    with open({str(path)!r}, 'rb') as file:\n        assert file.read()"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        thread.start()
        answers = {disk.is_shared(path)}
        while process.poll() is None:
            answers.add(disk.is_shared(path))
        done.set()
        thread.join()
    assert process.returncode == 0
    assert all(opened)
    assert True in answers
    assert not disk.is_shared(path)


def test_a_folder_has_one_holder(disk: Disk, folder: Path) -> None:
    """The second to lock is refused by name until the first has released."""
    lock = disk.lock(folder)
    with pytest.raises(Conflict, match="in use"):
        disk.lock(folder)
    lock.close()
    lock.close()
    disk.lock(folder).close()


def test_free_space_is_a_number_of_bytes(disk: Disk, folder: Path) -> None:
    """There is some, of some more."""
    space = disk.space(folder)
    assert 0 < space.free_bytes <= space.size_bytes
    assert 0 <= space.free_inodes <= space.inodes


def test_files_may_be_read_and_written_from_several_threads(disk: Disk, folder: Path) -> None:
    """One writer and several readers at once: a reader sees whole records, or the previous content."""
    file = disk.open(folder / "f", create=True)
    file.allocate(64_000)
    wrong: list[bytes] = []

    def read() -> None:
        for number in range(200):
            record = file.read(64 * number, 64)
            if record not in (bytes(64), b"%064d" % number):
                wrong.append(record)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1000):
        file.write(64 * number, [b"%064d" % number])
    for reader in readers:
        reader.join()
    assert wrong == []
    file.close()


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    """ENOSPC is the error of a disk without space on all implementations."""
    for disk in (MemoryDisk(capacity_bytes=100), FaultyDisk(MemoryDisk())):
        disk.make_folder(tmp_path)
        file = disk.open(tmp_path / "f", create=True)
        if isinstance(disk, FaultyDisk):
            disk.full_after(100)
        with pytest.raises(OSError, match="space") as full:
            file.write(0, [b"x" * 60, b"y" * 60])
        assert full.value.errno == errno.ENOSPC
        assert file.size_bytes() <= 100
        with pytest.raises(OSError, match="space"):
            file.allocate(1000)


@contextlib.contextmanager
def _none_left(disk: Disk) -> Iterator[None]:
    """Nothing can be opened in the block."""
    if isinstance(disk, FaultyDisk):
        disk.open_error = errno.EMFILE
        yield
        disk.open_error = 0
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", ["real", "faulty around real", "faulty around memory"])
def test_an_open_without_a_descriptor_is_refused(kind: str, tmp_path: Path) -> None:
    """It is no error of the disk: open files still work, and refused calls work when a descriptor is free.

    A locked folder is synced through the descriptor of its lock.
    """
    disk, folder = DISKS[kind](), tmp_path / "store"
    disk.make_folder(folder)
    with disk.lock(folder), contextlib.closing(disk.open(folder / "f", create=True)) as file:
        with _none_left(disk):
            refused = (
                lambda: disk.open(folder / "g", create=True),
                lambda: disk.open(folder / "f", writable=False),
                lambda: disk.list(folder),
                lambda: disk.lock(folder),
                lambda: disk.is_shared(folder / "f"),
            )
            for call in refused:
                with pytest.raises(NoDescriptor, match="cannot be opened") as told:
                    call()
                assert told.value.retry_after_ms > 0
            file.write(0, [b"works"])
            file.sync_data()
            disk.rename(folder / "f", folder / "h")
            disk.sync_directory(folder)
        assert disk.list(folder) == ["h"]
        with contextlib.closing(disk.open(folder / "h", writable=False)) as again:
            assert again.read(0, 9) == b"works"

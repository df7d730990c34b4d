"""Each fault of the faulty disk does what it says, once it is switched on."""

import errno
from pathlib import Path

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import RealDisk
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/store")


@pytest.fixture
def disk() -> FaultyDisk:
    """A disk without faults, with one folder."""
    disk = FaultyDisk(MemoryDisk())
    disk.make_folder(FOLDER)
    return disk


def test_a_short_write_leaves_its_beginning(disk: FaultyDisk) -> None:
    """The bytes before the limit are there, the error says why the others are not, and healing ends it."""
    file = disk.open(FOLDER / "f", create=True)
    disk.full_after(5)
    with pytest.raises(OSError, match="space"):
        file.write(0, [b"abc", b"def"])
    assert file.read(0, 9) == b"abcde"
    assert disk.space(FOLDER).free_bytes == 0
    disk.heal()
    file.write(0, [b"abcdef"])
    assert file.read(0, 9) == b"abcdef"


def test_a_sync_fails_when_told_and_its_bytes_are_gone(disk: FaultyDisk) -> None:
    """EIO comes once, at the right sync, and a crash afterwards may show that nothing was written."""
    file = disk.open(FOLDER / "f", create=True)
    disk.sync_directory(FOLDER)
    disk.fail_sync(after=1)
    file.write(0, [b"a"])
    file.sync_data()
    file.write(1, [b"b"])
    with pytest.raises(OSError, match=r".") as failed:
        file.sync_data()
    assert failed.value.errno == errno.EIO
    file.sync_data()
    assert disk.syncs == 3
    left = disk.after_crash(Randomness(1), LOSE_UNSYNCED).open(FOLDER / "f")
    assert left.read(0, 9) == b"a"


def test_a_lying_disk_syncs_nothing(disk: FaultyDisk) -> None:
    """Syncs of files and of folders can be made to answer without doing anything."""
    disk.lose_syncs = disk.lose_folder_syncs = True
    file = disk.open(FOLDER / "f", create=True)
    file.write(0, [b"a"])
    file.sync_data()
    disk.sync_directory(FOLDER)
    assert disk.after_crash(Randomness(1), LOSE_UNSYNCED).list(FOLDER) == []


def test_a_flipped_bit_is_read_by_everybody(tmp_path: Path) -> None:
    """Reads that cover the byte see it changed; the file itself is whole."""
    disk = FaultyDisk(RealDisk())
    file = disk.open(tmp_path / "f", create=True)
    file.write(0, [b"abcd"])
    disk.flip_bit(tmp_path / "f", 2, bit=1)
    assert file.read(0, 4) == b"abad"
    assert file.read(3, 1) == b"d"
    assert (tmp_path / "f").read_bytes() == b"abcd"
    disk.rename(tmp_path / "f", tmp_path / "g")
    disk.flip_bit(tmp_path / "g", 0, bit=1)
    assert file.read(0, 2) == b"cb"
    with pytest.raises(TypeError):
        disk.after_crash(Randomness(1))
    file.close()

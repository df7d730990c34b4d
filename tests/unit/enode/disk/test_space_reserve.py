"""The space reserve of a replica's folder: small files can be replaced on a full disk."""

from pathlib import Path

import pytest

from ortoo.enode.disk.atomic_files import (
    RESERVE_BYTES,
    RESERVE_NAME,
    RESERVE_STEP_BYTES,
    fill_reserve,
    read_file,
    write_atomically,
)
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/store")
FILE = FOLDER / "file"


def test_a_small_file_is_replaced_on_a_full_disk_from_the_reserve() -> None:
    """Each step that other writers take leaves the next one; when all are taken, the error is that of the disk."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    fill_reserve(disk, FOLDER)
    for number in range(RESERVE_BYTES // RESERVE_STEP_BYTES):
        disk.capacity_bytes = disk.image.used_bytes()
        write_atomically(disk, FILE, b"%d" % number * 100)
        assert read_file(disk, FILE) == b"%d" % number * 100
    disk.capacity_bytes = disk.image.used_bytes()
    with pytest.raises(OSError, match="No space left"):
        write_atomically(disk, FILE, b"x" * 100)


def test_the_reserve_is_filled_again_when_the_disk_has_space() -> None:
    """On a full disk it stays as it is."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    fill_reserve(disk, FOLDER)
    disk.capacity_bytes = disk.image.used_bytes()
    write_atomically(disk, FILE, b"x" * 100)
    disk.capacity_bytes = disk.image.used_bytes()
    fill_reserve(disk, FOLDER)
    assert len(read_file(disk, FOLDER / RESERVE_NAME) or b"") == RESERVE_BYTES - RESERVE_STEP_BYTES
    disk.capacity_bytes = 1 << 40
    fill_reserve(disk, FOLDER)
    assert len(read_file(disk, FOLDER / RESERVE_NAME) or b"") == RESERVE_BYTES

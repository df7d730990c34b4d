"""The space reserve of a replica's folder: small files can be replaced on a full disk."""

from dataclasses import replace
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
from ortoo.enode.disk.hard_state_file import StoredHardState, read_hard_state, write_hard_state
from ortoo.enode.disk.identity import StoreIdentity, write_identity
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.index_files import write_index
from ortoo.enode.log.queue_index import IndexParts
from ortoo.enode.log.rows import IndexRows
from ortoo.enode.log.segment import Segment
from ortoo.enode.replication.protocol.identity import HardState, ReplicaId
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
        write_atomically(disk, FILE, b"%d" % number * 100, uses_reserve=True)
        assert read_file(disk, FILE) == b"%d" % number * 100
    disk.capacity_bytes = disk.image.used_bytes()
    with pytest.raises(OSError, match="No space left"):
        write_atomically(disk, FILE, b"x" * 100, uses_reserve=True)


def test_the_reserve_is_filled_again_when_the_disk_has_space() -> None:
    """On a full disk it stays as it is."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    fill_reserve(disk, FOLDER)
    disk.capacity_bytes = disk.image.used_bytes()
    write_atomically(disk, FILE, b"x" * 100, uses_reserve=True)
    disk.capacity_bytes = disk.image.used_bytes()
    fill_reserve(disk, FOLDER)
    assert len(read_file(disk, FOLDER / RESERVE_NAME) or b"") == RESERVE_BYTES - RESERVE_STEP_BYTES
    disk.capacity_bytes = 1 << 40
    fill_reserve(disk, FOLDER)
    assert len(read_file(disk, FOLDER / RESERVE_NAME) or b"") == RESERVE_BYTES


@pytest.mark.parametrize(("length", "uses_reserve"), [(100, False), (RESERVE_STEP_BYTES + 1, True), (1 << 20, True)])
def test_other_files_take_nothing_from_the_reserve(length: int, uses_reserve: bool) -> None:
    """An index file, which a start can make again, and a file that no step of the reserve has room for."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    fill_reserve(disk, FOLDER)
    disk.capacity_bytes = disk.image.used_bytes()
    with pytest.raises(OSError, match="No space left"):
        write_atomically(disk, FOLDER / "index", b"x" * length, uses_reserve=uses_reserve)
    assert len(read_file(disk, FOLDER / RESERVE_NAME) or b"") == RESERVE_BYTES


def test_the_hard_state_is_written_on_a_full_disk_after_an_index_file_found_no_space() -> None:
    """The index of a full segment is retried each second, so it would use up the reserve before the next vote."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    write_identity(disk, FOLDER, StoreIdentity("default", "enode-0", "set", 1, "disk"))
    stored = StoredHardState(ReplicaId(1, "disk"), "set", 1, incarnation=1)
    write_hard_state(disk, FOLDER, stored)
    fill_reserve(disk, FOLDER)
    segment = Segment(SegmentFiles(disk), FOLDER, 0, 1 << 20)
    rows = IndexRows()
    for number in range(10_000):
        rows.append(number, 1, number * 64, 64, 1)
    for _ in range(3):
        disk.capacity_bytes = disk.image.used_bytes()
        with pytest.raises(OSError, match="No space left"):
            write_index(disk, segment, 1 << 20, 1, IndexParts({(1, 0): rows}))
    later = replace(stored, hard_state=HardState(7))
    write_hard_state(disk, FOLDER, later)
    assert read_hard_state(disk, FOLDER) == later

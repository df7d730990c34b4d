"""A power cut of a disk in memory keeps all synced bytes, and any possible part of the others."""

from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED, LOSE_UNSYNCED, PAGE_BYTES, CrashOutcome
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/store")
TRIES = 200


def disk_with(name: str = "f", data: bytes = b"") -> MemoryDisk:
    """A disk with one durable file."""
    disk = MemoryDisk(record=True)
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / name, create=True)
    file.write(0, [data])
    file.sync_data()
    disk.sync_directory(FOLDER)
    return disk


def bytes_of(disk: MemoryDisk, name: str = "f") -> bytes:
    """The whole file."""
    file = disk.open(FOLDER / name)
    return file.read(0, file.size_bytes())


def test_what_was_synced_survives_every_crash() -> None:
    """Synced bytes and names are there, whatever becomes of the others."""
    disk = disk_with(data=b"durable")
    disk.open(FOLDER / "f").write(100, [b"not synced"])
    disk.open(FOLDER / "g", create=True).write(0, [b"no name yet"])
    for seed in range(TRIES):
        assert bytes_of(disk.after_crash(Randomness(seed)))[:7] == b"durable"
    assert bytes_of(disk.after_crash(Randomness(1), LOSE_UNSYNCED)) == b"durable"
    assert disk.after_crash(Randomness(1), LOSE_UNSYNCED).list(FOLDER) == ["f"]
    kept = disk.after_crash(Randomness(1), KEEP_UNSYNCED)
    assert bytes_of(kept) == bytes_of(disk)
    assert bytes_of(kept, "g") == b"no name yet"


def test_unsynced_pages_arrive_in_any_order_and_in_part() -> None:
    """All, none, the later without the earlier, and halves of pages: each is seen among enough crashes."""
    disk = disk_with(data=bytes(3 * PAGE_BYTES))
    disk.open(FOLDER / "f").write(0, [b"x" * (3 * PAGE_BYTES)])
    seen = set()
    torn = False
    for seed in range(TRIES):
        data = bytes_of(disk.after_crash(Randomness(seed)))
        pages = [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]
        torn |= any(0 < page.count(b"x") < PAGE_BYTES for page in pages)
        seen.add(tuple(page[:1] + page[-1:] for page in pages))
    assert torn
    nothing, all_of_it = b"\0\0", b"xx"
    assert {(nothing,) * 3, (all_of_it,) * 3, (nothing, nothing, all_of_it)} <= seen


def test_a_page_written_twice_never_arrives_in_the_wrong_order() -> None:
    """A page holds the old bytes, the first change or both changes, but not the second without the first."""
    disk = disk_with(data=bytes(64))
    file = disk.open(FOLDER / "f")
    file.write(0, [b"a" * 64])
    file.write(32, [b"b" * 32])
    fate = CrashOutcome(torn_pages=False)
    found = {bytes_of(disk.after_crash(Randomness(seed), fate)) for seed in range(TRIES)}
    assert found == {bytes(64), b"a" * 64, b"a" * 32 + b"b" * 32}


def test_names_may_be_undone_until_their_folder_is_synced() -> None:
    """A rename is whole or not there; in a journal names come in order, without one in any."""
    disk = disk_with(data=b"old")
    new = disk.open(FOLDER / "new", create=True)
    new.write(0, [b"new"])
    new.sync_data()
    disk.rename(FOLDER / "new", FOLDER / "f")
    disk.open(FOLDER / "later", create=True)
    in_order = {
        (tuple(left.list(FOLDER)), bytes_of(left))
        for left in (disk.after_crash(Randomness(seed), CrashOutcome(names_in_order=True)) for seed in range(TRIES))
    }
    assert in_order == {
        (("f",), b"old"), (("f", "new"), b"old"), (("f",), b"new"), (("f", "later"), b"new"),
    }  # fmt: skip
    left = [disk.after_crash(Randomness(seed), CrashOutcome(names_in_order=False)) for seed in range(TRIES)]
    assert any(one.list(FOLDER) == ["f", "later"] and bytes_of(one) == b"old" for one in left)
    disk.sync_directory(FOLDER)
    assert {tuple(disk.after_crash(Randomness(seed)).list(FOLDER)) for seed in range(TRIES)} == {("f", "later")}


def test_a_failed_sync_is_not_made_up_for_by_the_next() -> None:
    """Writes in progress when the disk failed may be lost permanently, although they can be read."""
    disk = disk_with(data=b"1")
    file = disk.open(FOLDER / "f")
    file.write(0, [b"2"])
    file.sync_failed()
    file.sync_data()
    assert bytes_of(disk) == b"2"
    assert bytes_of(disk.after_crash(Randomness(1), LOSE_UNSYNCED)) == b"1"


def test_recorded_operations_make_the_same_disk_again() -> None:
    """A crash at any point can be looked at again: the same operations and the same seed give the same bytes."""
    disk = disk_with(data=b"durable")
    file = disk.open(FOLDER / "f")
    file.write(3, [b"x" * 10_000])
    file.allocate(20_000)
    disk.rename(FOLDER / "f", FOLDER / "g")
    again = MemoryDisk.replayed(disk.operations)
    assert bytes_of(again, "g") == bytes_of(disk, "g")
    for seed in range(20):
        one, other = disk.after_crash(Randomness(seed)), again.after_crash(Randomness(seed))
        assert one.list(FOLDER) == other.list(FOLDER)
        assert all(bytes_of(one, name) == bytes_of(other, name) for name in one.list(FOLDER))


def test_zeros_ahead_overwrite_what_lies_behind_them() -> None:
    """A store that writes them in the wrong place loses data in a simulation, too, and whole after a power cut."""
    disk = MemoryDisk(record=True)
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / "f", create=True)
    file.write(0, [b"abc\0"])
    file.sync_data()
    operations = len(disk.operations)
    file.zero_ahead(3)
    assert len(disk.operations) == operations
    file.zero_ahead(1)
    assert file.read(0, 4) == b"a\0\0\0"
    assert bytes(disk.image.contents[file.number].durable) == b"abc\0"
    file.sync_data()
    assert bytes(disk.image.contents[file.number].durable) == b"a\0\0\0"

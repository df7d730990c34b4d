"""Small files that are replaced whole: after a crash at any point the old one or the new one is there."""

from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.atomic_files import read_file, write_atomically
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.crash_points import OUTCOMES

FOLDER = Path("/store")
FILE = FOLDER / "identity"
OLD, NEW = b"old" * 3000, b"new" * 5000


def test_a_file_is_replaced_as_a_whole_or_not_at_all() -> None:
    """E-224: a power cut after every operation, with every fate of unsynced data. A finished write means new."""
    before = MemoryDisk()
    before.make_folder(FOLDER)
    write_atomically(before, FILE, OLD)
    disk = before.after_crash(Randomness(0), KEEP_UNSYNCED, record=True)
    write_atomically(disk, FILE, NEW)
    operations = disk.operations
    assert len(operations) >= 5
    found = set()
    for done in range(len(operations) + 1):
        for variant in range(60):
            image = before.after_crash(Randomness(0), KEEP_UNSYNCED).image
            for operation in operations[:done]:
                image.apply(operation)
            choice = Randomness(done * 1000 + variant)
            left = MemoryDisk(image=image.after_crash(choice, OUTCOMES[variant % len(OUTCOMES)]))
            data = read_file(left, FILE)
            assert data in (OLD, NEW)
            assert done < len(operations) or data == NEW
            found.add(data)
            write_atomically(left, FILE, NEW)  # leftovers of the crash do not prevent it
            assert read_file(left, FILE) == NEW
    assert found == {OLD, NEW}

"""Pairs of slots that are written in turn, in place. A torn write damages only one slot, and no file name changes.

A slot has 64 bytes: a head with the folder's tag, numbers, zeros, and the CRC of the 60 bytes before.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.errors import Unsupported
from ortoo.enode.disk.atomic_files import CRC_BYTES, DamagedFile, FileHead, read_file, with_crc, without_crc
from ortoo.enode.disk.disk import Disk, File

SLOT_BYTES = 64
PAIR_BYTES = 2 * SLOT_BYTES
SERIALS_NAME = "serials"
"""Holds the number of the last write of files whose older copies must be recognized, each in a pair of slots."""
Numbers = tuple[int, ...]


def decode_slots(data: bytes, head: FileHead, tag: int = 0) -> Numbers | None:
    """The numbers of the newer slot, which has the greater numbers; None if neither of the two slots is valid.

    A slot of a newer version, or with the tag of another folder, is ignored. `tag` 0 matches any tag.
    """
    found: list[Numbers] = []
    for at in range(0, PAIR_BYTES, SLOT_BYTES):
        try:
            slot = without_crc(data[at : at + SLOT_BYTES], "slot")
            if head.is_of(tag, slot):
                found.append(head.unpack(slot))
        except (DamagedFile, Unsupported):
            continue
    return max(found, default=None)


def read_slots(disk: Disk, path: Path, head: FileHead, tag: int = 0, pair: int = 0) -> Numbers | None:
    """Read a pair of slots from a file, and decode it as `decode_slots` does; None without a file. Errors: OSError."""
    return decode_slots((read_file(disk, path) or b"")[pair * PAIR_BYTES :], head, tag)


def write_slots(disk: Disk, path: Path, head: FileHead, tag: int, pair: int, *numbers: int) -> None:
    """Replace the slot of a pair that has the smaller numbers, durably. Errors: OSError."""
    with closing(Slots(disk, path, head, tag, pair)) as slots:
        slots.replace(*numbers)


@dataclass(slots=True, eq=False)
class Slots:
    """One pair of slots in a file. The file is opened at the first write."""

    disk: Disk
    path: Path
    head: FileHead
    tag: int
    pair: int = 0
    _file: File | None = None
    _slot: int = 0

    def replace(self, *numbers: int) -> None:
        """Replace the slot with the smaller numbers, durably. Errors: OSError."""
        at = self.pair * PAIR_BYTES
        if self._file is None:
            is_new = self.path.name not in self.disk.list(self.path.parent)
            self._file = self.disk.open(self.path, create=is_new)
            if is_new:
                self.disk.sync_directory(self.path.parent)
            else:
                data = self._file.read(at, PAIR_BYTES)
                first, second = (
                    decode_slots(one, self.head, self.tag) or () for one in (data[:SLOT_BYTES], data[SLOT_BYTES:])
                )
                self._slot = 1 if first >= second else 0
        slot = with_crc(self.head.pack(*numbers, tag=self.tag).ljust(SLOT_BYTES - CRC_BYTES, b"\0"))
        self._file.write(at + self._slot * SLOT_BYTES, [slot])
        self._file.sync_data()
        self._slot = 1 - self._slot

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

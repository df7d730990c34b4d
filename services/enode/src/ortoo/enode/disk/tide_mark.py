"""The tide mark: a second witness, outside the log, of how far the log was durable when the store last fell idle.

A member writes it under load, too: of what it acknowledged to others no frame of the log tells.
Marks in the log say so too, but the last one lies beside the last batch: one bad page of the disk can hide both. Two
slots are written in turn, so that a torn write leaves the other.
"""

from dataclasses import dataclass
from pathlib import Path

from ortoo.common.errors import Unsupported
from ortoo.enode.disk.disk import Disk, File
from ortoo.enode.disk.whole_files import CRC_BYTES, Damaged, Head, read_whole, with_crc, without_crc

FILE_NAME = "durable"
SLOT_BYTES = 64
_SLOT = Head("slot of the tide mark", b"ORTD", 1, "Q")


def decode_slots(data: bytes) -> int:
    """The highest position of a whole slot; 0 if there is none. A newer version is passed over: it is only a hint."""
    positions = [0]
    for at in range(0, 2 * SLOT_BYTES, SLOT_BYTES):
        try:
            positions += _SLOT.unpack(without_crc(data[at : at + SLOT_BYTES], "slot"))
        except (Damaged, Unsupported):
            continue
    return max(positions)


def read_tide_mark(disk: Disk, folder: Path) -> int:
    """Up to which log position the mark in a store's folder says that the log is durable; 0 if nothing says so."""
    return decode_slots(read_whole(disk, folder / FILE_NAME) or b"")


@dataclass(slots=True, eq=False)
class TideMark:
    """The file in a store's folder, opened when first written."""

    disk: Disk
    folder: Path
    _file: File | None = None
    _slot: int = 0

    def write(self, position: int) -> None:
        """Say that the log is durable below `position`. Errors: OSError."""
        if self._file is None:
            path = self.folder / FILE_NAME
            is_new = FILE_NAME not in self.disk.list(self.folder)
            self._file = self.disk.open(path, create=is_new)
            if is_new:
                self.disk.sync_directory(self.folder)
            else:
                data = self._file.read(0, 2 * SLOT_BYTES)
                self._slot = 1 if decode_slots(data[:SLOT_BYTES]) >= decode_slots(data[SLOT_BYTES:]) else 0
        slot = with_crc(_SLOT.pack(position).ljust(SLOT_BYTES - CRC_BYTES, b"\0"))
        self._file.write(self._slot * SLOT_BYTES, [slot])
        self._file.sync_data()
        self._slot = 1 - self._slot

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

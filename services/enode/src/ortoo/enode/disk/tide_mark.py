"""The tide mark: a second witness, outside the log, of how far the log was durable when the store last fell idle.

A member writes it under load, too: of what it acknowledged to others no frame of the log tells. It also says how far
the log was committed then, so that no later leader takes that away.
Marks in the log say so too, but the last one lies beside the last batch: one bad page of the disk can hide both.
"""

from pathlib import Path

from ortoo.enode.disk import slots
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.slots import SLOT_BYTES, Slots, read_slots
from ortoo.enode.disk.whole_files import Head

__all__ = ["FILE_NAME", "SLOT_BYTES", "TideMark", "decode_slots", "read_tide_mark"]

FILE_NAME = "durable"
HEAD = Head("slot of the tide mark", b"ORTD", 1, "QQ")


def decode_slots(data: bytes) -> int:
    """The highest position of a whole slot; 0 if there is none."""
    found = slots.decode_slots(data, HEAD)
    return found[0] if found else 0


def read_tide_mark(disk: Disk, folder: Path, tag: int | None = None) -> int:
    """Up to which log position the mark in a store's folder says that the log is durable; 0 if nothing says so.

    `tag` is that of the folder, if it is not to be taken from its identity.
    """
    found = read_slots(disk, folder / FILE_NAME, HEAD, tag_of(disk, folder) if tag is None else tag)
    return found[0] if found else 0


def read_committed_mark(disk: Disk, folder: Path) -> int:
    """Up to which log position the mark says that the log is committed; 0 if nothing says so."""
    found = read_slots(disk, folder / FILE_NAME, HEAD, tag_of(disk, folder))
    return found[1] if found else 0


class TideMark(Slots):
    """The file in a store's folder, opened when first written."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Write to the folder's mark; the tag is that of the folder's identity. Errors: DataLoss, OSError."""
        super().__init__(disk, folder / FILE_NAME, HEAD, tag_of(disk, folder))

    def write(self, position: int, committed: int = 0) -> None:
        """Say that the log is durable below `position`, and how far it is committed. Errors: OSError."""
        self.replace(position, committed)

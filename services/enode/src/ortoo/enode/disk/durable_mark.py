"""The durable mark: the durable position of the log when the store last fell idle, stored outside the log.

Marks in the log record this position too, but the last mark lies beside the last batch. One bad page of the disk can
hide both. A replica also writes the durable mark under load, because no frame records its acknowledgements to other
replicas. The mark also has the committed position, so that no later leader truncates committed frames.
"""

from pathlib import Path

from ortoo.enode.disk import slots
from ortoo.enode.disk.atomic_files import FileHead
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.slots import SLOT_BYTES, Slots, read_slots

__all__ = ["FILE_NAME", "SLOT_BYTES", "DurableMark", "decode_slots", "read_durable_mark"]

FILE_NAME = "durable"
HEAD = FileHead("slot of the durable mark", b"ORTD", 1, "QQ")


def decode_slots(data: bytes) -> int:
    """The highest position in an undamaged slot; 0 if no slot is undamaged."""
    found = slots.decode_slots(data, HEAD)
    return found[0] if found else 0


def read_durable_mark(disk: Disk, folder: Path, tag: int | None = None) -> int:
    """The durable position in the mark of a store's folder; 0 if unknown.

    `tag` replaces the tag from the folder's identity.
    """
    found = read_slots(disk, folder / FILE_NAME, HEAD, tag_of(disk, folder) if tag is None else tag)
    return found[0] if found else 0


def read_committed_mark(disk: Disk, folder: Path) -> int:
    """The committed position in the mark; 0 if unknown."""
    found = read_slots(disk, folder / FILE_NAME, HEAD, tag_of(disk, folder))
    return found[1] if found else 0


class DurableMark(Slots):
    """The file with the durable and the committed position of a store. It is opened at the first write."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Prepare the mark of a folder, with the tag of its identity. Errors: DataLoss, OSError."""
        super().__init__(disk, folder / FILE_NAME, HEAD, tag_of(disk, folder))

    def write(self, position: int, committed: int = 0) -> None:
        """Write the durable and the committed position. Errors: OSError."""
        self.replace(position, committed)

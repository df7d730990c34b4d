"""The hard state of a replica: the identity of its disk, and its vote. It is written and synced before any answer.

The number of its last write is stored separately, so that an older copy is recognized. A replica with an older copy
could vote twice in one epoch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.atomic_files import FileHead
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.json_files import read_json_file, write_json_file
from ortoo.enode.disk.slots import SERIALS_NAME, read_slots, write_slots
from ortoo.enode.replication.protocol.identity import HardState, Incarnation, ReplicaId, Tail

FILE_NAME = "reign"
VERSION = 1
REJOIN_ADVICE = (
    "restore the latest copy of the file, if there is one. Otherwise empty the folder, start the process, and let the "
    "disk join the set as a new replica (`ortoo enode add`, then `ortoo enode remove` for the old one). If no other "
    "replica is left, `ortoo-enode elect DIR --lose` continues with this disk"
)
"""The remedy when a replica's own files are missing, damaged, older copies or of another folder."""
_SERIAL = FileHead("slot of the hard state's serial", b"ORTH", 1, "QQ")
_PAIR = 0


@dataclass(frozen=True, slots=True)
class StoredHardState:
    """The hard state of a replica. A replica whose disk was emptied is a new replica."""

    replica: ReplicaId
    set_id: str = ""
    """The id of the replica set; empty before the replica has joined one."""
    created_at_ms: int = 0
    """The time at which the set was made."""
    incarnation: int = 0
    """The incarnation of the start that wrote it."""
    hard_state: HardState = HardState()
    is_founder: bool = False
    """Whether this replica initializes or initialized the set."""
    made_from: str = ""
    """The id of the store or set that this set was made of; empty = none."""

    @property
    def identity(self) -> Incarnation:
        """The replica that wrote this hard state, and the number of its start (incarnation)."""
        return Incarnation(self.replica, self.incarnation)


def read_hard_state(disk: Disk, folder: Path) -> StoredHardState | None:
    """The hard state in a folder; None without the file.

    Errors: Unsupported. DataLoss when the file is damaged or an older copy.
    """
    found = read_json_file(disk, folder / FILE_NAME, VERSION, REJOIN_ADVICE, _from_fields)
    if found is None:
        return None
    kept, saves = found
    written = read_serial(disk, folder)
    if (kept.incarnation, saves) < written:
        raise DataLoss(
            f"{folder / FILE_NAME} is an older copy: it is write {saves} of start {kept.incarnation}, but the last "
            f"write was write {written[1]} of start {written[0]}; {REJOIN_ADVICE}"
        )
    return kept


def read_serial(disk: Disk, folder: Path) -> tuple[int, int]:
    """The number of the start that last wrote the hard state, and the number of that write; zeros if unknown."""
    found = read_slots(disk, folder / SERIALS_NAME, _SERIAL, tag_of(disk, folder), _PAIR)
    return (found[0], found[1]) if found else (0, 0)


def _from_fields(fields: dict[str, Any]) -> tuple[StoredHardState, int]:
    number, leader_disk, incarnation = fields["leader"]
    kept = StoredHardState(
        ReplicaId(*fields["member"]),
        fields["set_id"],
        fields["created_at_ms"],
        fields["incarnation"],
        HardState(fields["epoch"], Incarnation(ReplicaId(number, leader_disk), incarnation), Tail(*fields["owed"])),
        fields["is_founder"],
        fields.get("made_from", ""),
    )
    return kept, fields.get("saves", 0)


def write_hard_state(disk: Disk, folder: Path, stored: StoredHardState) -> None:
    """Replace the file durably, then record the number of this write. Errors: OSError.

    Invariant: the recorded number is never above the number in the file, so only an older copy is below it.
    """
    hard_state, (incarnation, saves) = stored.hard_state, read_serial(disk, folder)
    saves = saves + 1 if incarnation == stored.incarnation else 1
    fields = {
        "member": stored.replica,
        "set_id": stored.set_id,
        "created_at_ms": stored.created_at_ms,
        "incarnation": stored.incarnation,
        "saves": saves,
        "epoch": hard_state.epoch,
        "leader": [*hard_state.leader.replica, hard_state.leader.incarnation],
        "owed": hard_state.unsynced_tail,
        "is_founder": stored.is_founder,
        **({"made_from": stored.made_from} if stored.made_from else {}),
    }
    write_json_file(disk, folder / FILE_NAME, VERSION, fields)
    write_slots(disk, folder / SERIALS_NAME, _SERIAL, tag_of(disk, folder), _PAIR, stored.incarnation, saves)

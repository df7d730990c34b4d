"""Who this disk is among an enode's members, and what it has promised: written whole and synced before it is said."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.common.errors import Conflict
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.lines import read_lines, write_lines
from ortoo.enode.members.identity import MemberId, Process, Reign, Tail

FILE_NAME = "reign"
VERSION = 1
REJOIN = "empty the folder, and let the disk join the set as another member"
"""What helps where a member's own files are damaged."""


@dataclass(frozen=True, slots=True)
class KeptReign:
    """A member's own file. It is lost with the disk, and then the disk is another member."""

    member: MemberId
    set_id: str = ""
    """Which set of members; empty before it has joined one."""
    created_at_ms: int = 0
    """When the set was made."""
    incarnation: int = 0
    """Of the start that wrote it."""
    reign: Reign = Reign()
    is_founder: bool = False
    """Whether this member began the set, or is about to."""

    @property
    def process(self) -> Process:
        """The start that wrote it."""
        return Process(self.member, self.incarnation)


def read_reign(disk: Disk, folder: Path) -> KeptReign | None:
    """The file in a folder; None in one that is no member's. Errors: DataLoss, Unsupported."""
    return read_lines(disk, folder / FILE_NAME, VERSION, REJOIN, _kept)


def check_alone(disk: Disk, folder: Path, advice: str) -> None:
    """Refuse the disk of a member to what knows of no others. Errors: Conflict with `advice`; as `read_reign`.

    What it has acknowledged counts in a majority, and what it writes by itself lies where others have something else.
    Before its first epoch it has done neither.
    """
    kept = read_reign(disk, folder)
    if kept is not None and kept.reign.epoch:
        raise Conflict(f"{folder} is the disk of member {kept.member.number} of set {kept.set_id}: {advice}")


def _kept(fields: dict[str, Any]) -> KeptReign:
    number, leader_disk, incarnation = fields["leader"]
    return KeptReign(
        MemberId(*fields["member"]),
        fields["set_id"],
        fields["created_at_ms"],
        fields["incarnation"],
        Reign(fields["epoch"], Process(MemberId(number, leader_disk), incarnation), Tail(*fields["owed"])),
        fields["is_founder"],
    )


def write_reign(disk: Disk, folder: Path, kept: KeptReign) -> None:
    """Replace the file, durably. Errors: OSError."""
    reign = kept.reign
    fields = {
        "member": kept.member,
        "set_id": kept.set_id,
        "created_at_ms": kept.created_at_ms,
        "incarnation": kept.incarnation,
        "epoch": reign.epoch,
        "leader": [*reign.leader.member, reign.leader.incarnation],
        "owed": reign.owed,
        "is_founder": kept.is_founder,
    }
    write_lines(disk, folder / FILE_NAME, VERSION, fields)

"""What a member has to know of its log and cannot read from its end: epochs, members, and a cut that is under way.

An older copy of the file is refused: it may tell of a cut that was done long ago, and the log would be cut again.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.lines import read_lines, write_lines
from ortoo.enode.disk.reign_file import REJOIN
from ortoo.enode.disk.slots import SERIALS_NAME, read_slots, write_slots
from ortoo.enode.disk.whole_files import Head
from ortoo.enode.members.identity import Configuration, MemberId
from ortoo.enode.members.log_outline import BeginFrame, EpochStart, History, LogOutline, MembersFrame

FILE_NAME = "outline"
VERSION = 1
NO_CUT = -1
_SERIAL = Head("slot of the outline's serial", b"ORTU", 1, "Q")
_PAIR = 1


@dataclass(frozen=True, slots=True)
class KeptOutline:
    """The outline as of a position. What lies behind is read from the log at a start."""

    outline: LogOutline = LogOutline()
    """Its `appended` is that position; nothing of it counts as flushed."""
    cut: int = NO_CUT
    """What lies behind this position is being taken away, and is not looked at any more; NO_CUT = nothing is."""

    @classmethod
    def of(cls, outline: LogOutline, *, cut: int = NO_CUT) -> "KeptOutline":
        """What is to be kept of an outline."""
        kept = replace(outline, flushed=outline.begin, committed=outline.begin, cuts=0, is_cutting=False)
        return cls(kept, cut)


def decode_configuration(fields: dict[str, Any]) -> Configuration:
    """Of what JSON has of one; it is written field by field."""
    voters, learners = (tuple(MemberId(*one) for one in fields[name]) for name in ("voters", "learners"))
    return Configuration(voters, learners)


def read_outline(disk: Disk, folder: Path) -> KeptOutline | None:
    """The file in a member's folder; None when there is none.

    Errors: DataLoss, also for an older copy and for another folder's; Unsupported.
    """
    found = read_lines(disk, folder / FILE_NAME, VERSION, REJOIN, _kept)
    if found is None:
        return None
    kept, tag, saves = found
    if (own := tag_of(disk, folder)) and tag not in (0, own):
        raise DataLoss(f"{folder / FILE_NAME} is of another folder: {REJOIN}")
    if saves is not None and saves < (written := read_serial(disk, folder)):
        raise DataLoss(f"{folder / FILE_NAME} is an older copy, of write {saves} of {written}: {REJOIN}")
    return kept


def read_serial(disk: Disk, folder: Path) -> int:
    """How often the file was written; 0 when nothing says so."""
    found = read_slots(disk, folder / SERIALS_NAME, _SERIAL, tag_of(disk, folder), _PAIR)
    return found[0] if found else 0


def _kept(fields: dict[str, Any]) -> tuple[KeptOutline, int, int | None]:
    """With the tag of its folder and its number, which a file of an older version does not have."""
    begin = fields["begin"]
    outline = LogOutline(
        begin,
        fields["end"],
        begin,
        begin,
        History(tuple(EpochStart(*one) for one in fields["epochs"])),
        tuple(MembersFrame(end, decode_configuration(one)) for end, one in fields["members"]),
        tuple(BeginFrame(*one) for one in fields["begins"]),
    )
    return KeptOutline(outline, fields["cut"]), fields.get("tag", 0), fields.get("saves")


def write_outline(disk: Disk, folder: Path, kept: KeptOutline) -> None:
    """Replace the file, durably. Errors: OSError."""
    outline, saves, tag = kept.outline, read_serial(disk, folder) + 1, tag_of(disk, folder)
    fields = {
        "begin": outline.begin,
        "end": outline.appended,
        "epochs": outline.history.starts,
        "members": [[one.end, asdict(one.configuration)] for one in outline.placed],
        "begins": outline.begins,
        "cut": kept.cut,
        "saves": saves,
        "tag": tag,
    }
    write_lines(disk, folder / FILE_NAME, VERSION, fields)
    write_slots(disk, folder / SERIALS_NAME, _SERIAL, tag, _PAIR, saves)

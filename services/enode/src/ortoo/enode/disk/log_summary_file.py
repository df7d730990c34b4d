"""The log summary of a replica, which cannot be read from the log's end: epochs, replicas, a truncation in progress.

An older copy of the file is refused. It may contain a truncation that was completed long ago, which would be repeated.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.json_files import read_lines, write_lines
from ortoo.enode.disk.hard_state_file import REJOIN
from ortoo.enode.disk.slots import SERIALS_NAME, read_slots, write_slots
from ortoo.enode.disk.atomic_files import Head
from ortoo.enode.replication.protocol.identity import Configuration, MemberId
from ortoo.enode.replication.protocol.log_summary import BeginFrame, EpochStart, History, LogOutline, MembersFrame

FILE_NAME = "outline"
VERSION = 1
NO_CUT = -1
_SERIAL = Head("slot of the log summary's serial", b"ORTU", 1, "Q")
_PAIR = 1


@dataclass(frozen=True, slots=True)
class KeptOutline:
    """The log summary as of a position. At a start the log behind it is read."""

    outline: LogOutline = LogOutline()
    """`appended` is that position; none of it counts as flushed."""
    cut: int = NO_CUT
    """The log behind this position is being truncated, and is no longer read; NO_CUT = no truncation."""

    @classmethod
    def of(cls, outline: LogOutline, *, cut: int = NO_CUT) -> "KeptOutline":
        """The part of a log summary that is stored."""
        kept = replace(outline, flushed=outline.begin, committed=outline.begin, cuts=0, is_cutting=False)
        return cls(kept, cut)


def decode_configuration(fields: dict[str, Any]) -> Configuration:
    """The configuration from its fields in JSON."""
    voters, learners = (tuple(MemberId(*one) for one in fields[name]) for name in ("voters", "learners"))
    return Configuration(voters, learners)


def read_outline(disk: Disk, folder: Path) -> KeptOutline | None:
    """The file in a replica's folder; None if there is none.

    Errors: DataLoss, also for an older copy or one of another folder. Unsupported.
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
    """The number of the file's last write; 0 if unknown."""
    found = read_slots(disk, folder / SERIALS_NAME, _SERIAL, tag_of(disk, folder), _PAIR)
    return found[0] if found else 0


def _kept(fields: dict[str, Any]) -> tuple[KeptOutline, int, int | None]:
    """The log summary, the tag of its folder and the number of the write, which older versions do not have."""
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
    """Replace the file durably. Errors: OSError."""
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

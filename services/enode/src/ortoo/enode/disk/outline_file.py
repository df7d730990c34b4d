"""What a member has to know of its log and cannot read from its end: epochs, members, and a cut that is under way."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.lines import read_lines, write_lines
from ortoo.enode.disk.reign_file import REJOIN
from ortoo.enode.members.identity import Configuration, MemberId
from ortoo.enode.members.log_outline import BeginFrame, EpochStart, History, LogOutline, MembersFrame

FILE_NAME = "outline"
VERSION = 1
NO_CUT = -1


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
    """The file in a member's folder; None when there is none. Errors: DataLoss, Unsupported."""
    return read_lines(disk, folder / FILE_NAME, VERSION, REJOIN, _kept)


def _kept(fields: dict[str, Any]) -> KeptOutline:
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
    return KeptOutline(outline, fields["cut"])


def write_outline(disk: Disk, folder: Path, kept: KeptOutline) -> None:
    """Replace the file, durably. Errors: OSError."""
    outline = kept.outline
    fields = {
        "begin": outline.begin,
        "end": outline.appended,
        "epochs": outline.history.starts,
        "members": [[one.end, asdict(one.configuration)] for one in outline.placed],
        "begins": outline.begins,
        "cut": kept.cut,
    }
    write_lines(disk, folder / FILE_NAME, VERSION, fields)

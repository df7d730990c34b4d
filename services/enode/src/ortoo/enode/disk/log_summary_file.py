"""The log summary of a replica, which cannot be read from the log's end: epochs, replicas, a truncation in progress.

An older copy of the file is refused. It may contain a truncation that was completed long ago, which would be repeated.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.atomic_files import FileHead
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.hard_state_file import REJOIN_ADVICE
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.json_files import read_json_file, write_json_file
from ortoo.enode.disk.slots import SERIALS_NAME, read_slots, write_slots
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import (
    BeginFrame,
    ConfigurationFrame,
    EpochHistory,
    EpochStart,
    LogSummary,
)

FILE_NAME = "outline"
VERSION = 1
NO_TRUNCATION = -1
_SERIAL = FileHead("slot of the log summary's serial", b"ORTU", 1, "Q")
_PAIR = 1


@dataclass(frozen=True, slots=True)
class StoredLogSummary:
    """The log summary as of a position. At a start the log behind it is read."""

    summary: LogSummary = LogSummary()
    """`appended` is that position; none of it counts as flushed."""
    pending_truncation: int = NO_TRUNCATION
    """The log behind this position is being truncated, and is no longer read; NO_TRUNCATION = none."""

    @classmethod
    def from_summary(cls, summary: LogSummary, *, pending_truncation: int = NO_TRUNCATION) -> "StoredLogSummary":
        """The part of a log summary that is stored."""
        kept = replace(summary, flushed=summary.begin, committed=summary.begin, truncations=0, is_truncating=False)
        return cls(kept, pending_truncation)


def decode_configuration(fields: dict[str, Any]) -> Configuration:
    """The configuration from its fields in JSON."""
    voters, learners = (tuple(ReplicaId(*one) for one in fields[name]) for name in ("voters", "learners"))
    return Configuration(voters, learners)


def read_log_summary(disk: Disk, folder: Path) -> StoredLogSummary | None:
    """The file in a replica's folder; None if there is none.

    Errors: DataLoss, also for an older copy or one of another folder. Unsupported.
    """
    found = read_json_file(disk, folder / FILE_NAME, VERSION, REJOIN_ADVICE, _from_fields)
    if found is None:
        return None
    kept, tag, saves = found
    if (own := tag_of(disk, folder)) and tag not in (0, own):
        raise DataLoss(f"{folder / FILE_NAME} is of another folder: {REJOIN_ADVICE}")
    if saves is not None and saves < (written := read_serial(disk, folder)):
        raise DataLoss(f"{folder / FILE_NAME} is an older copy, of write {saves} of {written}: {REJOIN_ADVICE}")
    return kept


def has_other_replicas(disk: Disk, folder: Path, replica_disk: str) -> bool:
    """Whether the file lists more replicas than the one with this disk; False without a file.

    The file may be replaced meanwhile, so an older copy is not refused. It lists a learner before that can vote. A file
    of another folder is left to `read_log_summary`.
    Errors: DataLoss, Unsupported.
    """
    found = read_json_file(disk, folder / FILE_NAME, VERSION, REJOIN_ADVICE, _from_fields)
    if found is None or found[1] not in (0, tag_of(disk, folder)):
        return False
    return [one.disk for one in found[0].summary.configuration.replicas] != [replica_disk]


def read_serial(disk: Disk, folder: Path) -> int:
    """The number of the file's last write; 0 if unknown."""
    found = read_slots(disk, folder / SERIALS_NAME, _SERIAL, tag_of(disk, folder), _PAIR)
    return found[0] if found else 0


def _from_fields(fields: dict[str, Any]) -> tuple[StoredLogSummary, int, int | None]:
    """The log summary, the tag of its folder and the number of the write, which older versions do not have."""
    begin = fields["begin"]
    summary = LogSummary(
        begin,
        fields["end"],
        begin,
        begin,
        EpochHistory(tuple(EpochStart(*one) for one in fields["epochs"])),
        tuple(ConfigurationFrame(end, decode_configuration(one)) for end, one in fields["members"]),
        tuple(BeginFrame(*one) for one in fields["begins"]),
    )
    return StoredLogSummary(summary, fields["cut"]), fields.get("tag", 0), fields.get("saves")


def write_log_summary(disk: Disk, folder: Path, stored: StoredLogSummary) -> None:
    """Replace the file durably. Errors: OSError."""
    summary, saves, tag = stored.summary, read_serial(disk, folder) + 1, tag_of(disk, folder)
    fields = {
        "begin": summary.begin,
        "end": summary.appended,
        "epochs": summary.history.starts,
        "members": [[one.end, asdict(one.configuration)] for one in summary.configurations],
        "begins": summary.log_begins,
        "cut": stored.pending_truncation,
        "saves": saves,
        "tag": tag,
    }
    write_json_file(disk, folder / FILE_NAME, VERSION, fields)
    write_slots(disk, folder / SERIALS_NAME, _SERIAL, tag, _PAIR, saves)

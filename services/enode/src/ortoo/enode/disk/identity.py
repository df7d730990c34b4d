"""The identity of the store in a folder: a small file, written when the store is made and when a field changes.

A field changes when the store gets another id or a disk id, and when `begins_anew` is set or cleared.
"""

import hashlib
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.json_files import read_json_file, write_json_file

FILE_NAME = "identity"
VERSION = 2
"""An identity without any of the fields with defaults is written as version 1, which older processes read."""
OF_THE_LOG = ("begin", "clean", "durable", "restored")
"""Files that a store writes only after its identity. The same holds for the files of segments."""
LOG_SUFFIXES = (".seg", ".idx", ".keys")


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The enode that owns the store, and the store's id."""

    cluster: str
    enode: str
    store_id: str
    created_at_ms: int
    disk: str = ""
    """The replica's disk id. If it is set, the store has hard state and never starts without it."""
    made_from: str = ""
    """The id of the store or replica set that an operator made this one of; empty = none."""
    log: str = ""
    """The fingerprint in the frames of the log, in hexadecimal; empty = that of `store_id`."""
    folder: str = ""
    """The store's id when it was made in this folder; empty = `store_id`."""
    begins_anew: bool = False
    """Whether the file `restored` must exist, because the store ends before its clients' latest knowledge."""

    @property
    def has_hard_state(self) -> bool:
        """Whether the store was initialized with hard state."""
        return bool(self.disk)

    @property
    def log_mark(self) -> int:
        """The fingerprint in the frames of this log. It does not change when the store gets another id."""
        return int(self.log, 16) if self.log else fingerprint(self.store_id)

    @property
    def tag(self) -> int:
        """The 16 bits that distinguish the small files of this folder from those of another folder; never 0."""
        return 1 + fingerprint(self.folder_id) % 0xFFFF

    @property
    def folder_id(self) -> str:
        """The id of the store in this folder, which does not change when the store gets another store id."""
        return self.disk or self.folder or self.store_id

    def renewed(self, store_id: str, created_at_ms: int, disk: str = "") -> "StoreIdentity":
        """The identity of the same log in this folder under another store id.

        `made_from` of the result is the last store id under which the log was started.
        """
        return replace(
            self,
            store_id=store_id,
            created_at_ms=created_at_ms,
            disk=disk or self.disk,
            made_from=self.made_from if self.begins_anew else self.store_id,
            log=f"{self.log_mark:016x}",
            folder=self.folder_id,
        )


def fingerprint(store_id: str) -> int:
    """A 64-bit hash of a store's id. It is never 0, because 0 means no id."""
    return int.from_bytes(hashlib.blake2b(store_id.encode(), digest_size=8).digest(), "little") or 1


def write_identity(disk: Disk, folder: Path, identity: StoreIdentity) -> None:
    """Write the identity of the folder's store durably. Errors: OSError."""
    added = {one.name for one in fields(StoreIdentity) if one.default is not MISSING}
    written = {name: value for name, value in asdict(identity).items() if value or name not in added}
    write_json_file(disk, folder / FILE_NAME, VERSION if added & written.keys() else 1, written)


def read_identity(disk: Disk, folder: Path) -> StoreIdentity | None:
    """The identity of the folder's store; None without the file.

    Errors: DataLoss when the file is damaged, Unsupported when it has a newer version.
    """
    advice = "put it back from a copy, or move the folder away to start with an empty one"
    return read_json_file(disk, folder / FILE_NAME, VERSION, advice, lambda found: StoreIdentity(**found))


def claim_folder(disk: Disk, folder: Path, expected: StoreIdentity, names: list[str]) -> StoreIdentity:
    """The identity of the store in `folder`. If the folder is empty, `expected` is written as its identity.

    Errors: Conflict when the folder belongs to another enode. DataLoss when there are files of a log but no identity.
    """
    found = read_identity(disk, folder)
    if found is None:
        if left := [name for name in names if is_of_log(name)]:
            raise DataLoss(
                f"{folder} holds a log ({left[0]}) but no file {FILE_NAME}: put it back from a copy, or run "
                "`ortoo-enode repair`"
            )
        write_identity(disk, folder, expected)
        return expected
    if (found.cluster, found.enode) != (expected.cluster, expected.enode):
        raise Conflict(
            f"{folder} belongs to enode {found.enode!r} of cluster {found.cluster!r}; this is {expected.enode!r} of "
            f"{expected.cluster!r}: choose another folder or correct the settings"
        )
    return found


def is_of_log(name: str) -> bool:
    """Whether a file of this name is written only after the identity."""
    return name in OF_THE_LOG or name.endswith(LOG_SUFFIXES)


def tag_of(disk: Disk, folder: Path) -> int:
    """The tag for files of this folder; 0 without a readable identity. Errors: Unsupported, OSError."""
    try:
        found = read_identity(disk, folder)
    except DataLoss:  # the opening of the store refuses it
        return 0
    return found.tag if found is not None else 0

"""Whose store a folder holds: a small file that is written once."""

from dataclasses import asdict, dataclass
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.lines import read_lines, write_lines

FILE_NAME = "identity"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The store's owner and its own id."""

    cluster: str
    enode: str
    store_id: str
    created_at_ms: int


def write_identity(disk: Disk, folder: Path, identity: Identity) -> None:
    """Say whose store a folder holds from now on, durably. Errors: OSError."""
    write_lines(disk, folder / FILE_NAME, VERSION, asdict(identity))


def read_identity(disk: Disk, folder: Path) -> Identity | None:
    """Whose store a folder holds; None when it does not say.

    Errors: DataLoss when the file is damaged, Unsupported when it is newer.
    """
    advice = "put it back from a copy, or move the folder away to start with an empty one"
    return read_lines(disk, folder / FILE_NAME, VERSION, advice, lambda fields: Identity(**fields))


def claim(disk: Disk, folder: Path, wanted: Identity, names: list[str]) -> Identity:
    """The identity of the store in `folder`; written first if the folder is empty.

    Errors: Conflict when it is another's; DataLoss when there is a log but no identity.
    """
    found = read_identity(disk, folder)
    if found is None:
        if any(name.endswith(".seg") for name in names):
            raise DataLoss(
                f"{folder} holds a log but no file {FILE_NAME}: put it back from a copy, or run `ortoo-enode repair`"
            )
        write_identity(disk, folder, wanted)
        return wanted
    if (found.cluster, found.enode) != (wanted.cluster, wanted.enode):
        raise Conflict(
            f"{folder} belongs to enode {found.enode!r} of cluster {found.cluster!r}; this is {wanted.enode!r} of "
            f"{wanted.cluster!r}: choose another folder or correct the settings"
        )
    return found

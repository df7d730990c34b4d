"""The data folder of an enode, and the check that its path still leads to it while the enode runs."""

from dataclasses import dataclass
from pathlib import Path

from ortoo.common.errors import DataLoss, Invalid
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import FILE_NAME as IDENTITY_NAME


def make_data_dir(disk: Disk, folder: Path) -> None:
    """Create the folder durably unless it exists. Errors: Invalid when that fails."""
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise Invalid(
            f"cannot create the folder {folder}: {error.strerror}; configure one that this user may write",
            field="data_dir",
        ) from error


class FolderGone(DataLoss):
    """The path of the store's folder now leads to another or no folder. The next start would not find new data."""


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """The folder as a process opened it. If it is moved, open files move with it, but paths do not."""

    disk: Disk
    folder: Path
    inode: tuple[int, int] | None
    """The inode of the folder."""

    @classmethod
    def taken(cls, disk: Disk, folder: Path) -> "OpenFolder":
        """The folder to which the path leads now. Errors: OSError."""
        return cls(disk, folder, disk.inode(folder))

    def check_folder(self) -> None:
        """Refuse a folder that was moved. Errors: OSError, and FolderGone when the path leads to another folder."""
        if self.disk.inode(self.folder) != self.inode:
            raise FolderGone(f"{self.folder} was moved away or replaced while this process had it open")

    def check(self) -> None:
        """Refuse a folder that was moved or emptied.

        Errors: OSError. FolderGone when the path leads elsewhere, or the store's identity was deleted.
        """
        self.check_folder()
        if self.disk.inode(self.folder / IDENTITY_NAME) is None:
            raise FolderGone(f"{self.folder} was emptied while this process had it open: {IDENTITY_NAME} was deleted")

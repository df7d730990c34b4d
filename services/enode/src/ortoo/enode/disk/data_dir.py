"""The folder that an enode is given, and whether it is still there while the enode runs."""

from dataclasses import dataclass
from pathlib import Path

from ortoo.common.errors import DataLoss, Invalid
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import FILE_NAME as IDENTITY_NAME


def make_data_dir(disk: Disk, folder: Path) -> None:
    """Create it, durably, unless it is there. Errors: Invalid when it cannot be."""
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise Invalid(
            f"the folder {folder} cannot be made: {error.strerror}; give one that this user may write", field="data_dir"
        ) from error


class FolderGone(DataLoss):
    """The path of the store's folder leads to another folder, or to nothing: what is written is not found again."""


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """The folder as a process opened it. Its open files stay with it wherever it is moved, and names do not."""

    disk: Disk
    folder: Path
    inode: tuple[int, int] | None
    """Of the folder."""

    @classmethod
    def taken(cls, disk: Disk, folder: Path) -> "OpenFolder":
        """The folder that the path leads to now. Errors: OSError."""
        return cls(disk, folder, disk.inode(folder))

    def check_folder(self) -> None:
        """Errors: FolderGone when the path leads elsewhere; OSError."""
        if self.disk.inode(self.folder) != self.inode:
            raise FolderGone(f"{self.folder} was moved away or replaced while this process had it open")

    def check(self) -> None:
        """Errors: FolderGone when the path leads elsewhere, or the store's identity is gone; OSError."""
        self.check_folder()
        if self.disk.inode(self.folder / IDENTITY_NAME) is None:
            raise FolderGone(f"{self.folder} was emptied while this process had it open: {IDENTITY_NAME} is gone")

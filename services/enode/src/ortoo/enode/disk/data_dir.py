"""The folder that an enode is given."""

from pathlib import Path

from ortoo.common.errors import Invalid
from ortoo.enode.disk.disk import Disk


def make_data_dir(disk: Disk, folder: Path) -> None:
    """Create it, durably, unless it is there. Errors: Invalid when it cannot be."""
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise Invalid(
            f"the folder {folder} cannot be made: {error.strerror}; give one that this user may write", field="data_dir"
        ) from error

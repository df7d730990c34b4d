"""The copy of a folder that is written meanwhile is a state of one moment."""

import shutil
from pathlib import Path

from ortoo.verification.store.crashed_copy import crashed_copy


def test_files_that_are_written_together_are_copied_from_the_same_moment(tmp_path: Path) -> None:
    """A write between the copies of two files makes another copy."""
    folder, copied = tmp_path / "store", list[str]()
    folder.mkdir()
    for name in ("first", "second"):
        (folder / name).write_text("1")

    def copy_and_write(source: str, target: str) -> None:
        shutil.copy2(source, target)
        copied.append(source)
        if len(copied) == 1:
            for name in ("first", "second"):
                (folder / f"{name}.tmp").write_text("2")
                (folder / f"{name}.tmp").replace(folder / name)

    target = crashed_copy(folder, tmp_path / "copy", copy_and_write)
    assert {one.name: one.read_text() for one in target.iterdir()} == {"first": "2", "second": "2"}
    assert len(copied) == 4

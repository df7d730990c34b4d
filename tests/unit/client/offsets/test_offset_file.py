"""Offsets in a file with a backup."""

from pathlib import Path

import pytest

from ortoo.client import Queue
from ortoo.client.offsets.offset_file import OffsetFile, offset_path
from ortoo.common.errors import DataLoss, Invalid

QUEUE, OTHER = Queue("t", "r1@x", 0), Queue("t", "enode-1", 3)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """E-112: nothing on the first start, then all offsets, for any names of enodes."""
    file = OffsetFile(tmp_path / "me" / "g.json")
    assert file.read() == {}
    file.write({QUEUE: 5, OTHER: 7})
    assert OffsetFile(file.path).read() == {QUEUE: 5, OTHER: 7}
    assert [it.name for it in file.path.parent.iterdir()] == ["g.json"]


@pytest.mark.parametrize("damage", [b"", b'{"format": 1, "offs', b"\xff\xfe", b"[]", b'{"format": 9, "offsets": []}'])
def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path, damage: bytes) -> None:
    """E-113: a truncated, emptied or foreign file costs one write, not the offsets. Later writes succeed."""
    file = OffsetFile(tmp_path / "g.json")
    file.write({QUEUE: 5})
    file.write({QUEUE: 6})
    file.path.write_bytes(damage)
    assert file.read() == {QUEUE: 5}
    file.write({QUEUE: 8})
    assert file.read() == {QUEUE: 8}
    file.path.write_bytes(damage)
    assert file.read() == {QUEUE: 5}, "a damaged file became the backup"


def test_a_crash_between_two_renames_leaves_the_backup(tmp_path: Path) -> None:
    """E-113: the file is missing, and its predecessor exists."""
    file = OffsetFile(tmp_path / "g.json")
    file.write({QUEUE: 5})
    file.path.rename(file.backup)
    assert file.read() == {QUEUE: 5}


def test_two_damaged_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    """E-113: starting without offsets would silently deliver everything again."""
    file = OffsetFile(tmp_path / "g.json")
    file.path.write_bytes(b"x")
    file.backup.write_bytes(b"y")
    with pytest.raises(DataLoss, match=r"g\.json.*g\.json\.bak"):
        file.read()


def test_each_client_and_group_has_its_own_file(tmp_path: Path) -> None:
    """E-112: groups may have characters that files may not. A client id outside the folder is refused."""
    paths = {offset_path(tmp_path, client, group) for client in ("a", "b") for group in ("g", "%RETRY%g", "x|y")}
    assert len(paths) == 6
    assert all(path.parent.parent == tmp_path for path in paths)
    for wrong in ("", ".", "..", "a/b"):
        with pytest.raises(Invalid):
            offset_path(tmp_path, wrong, "g")

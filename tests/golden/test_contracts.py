"""Processes of an older version and of this one are compatible: no field changed its number or meaning.

`contracts` has the output of `buf build --exclude-source-info` for earlier protos. Add one with each release.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

CONTRACTS = sorted((Path(__file__).parent / "contracts").glob("*.binpb"))
RENAMED = {
    ("ortoo.v1.Member", "ortoo.v1.GroupMember"),
    ("ortoo.v1.Acknowledge", "ortoo.v1.Commit"),
    ("ortoo.v1.Acknowledged", "ortoo.v1.Committed"),
    ("ortoo.v1.LockWish", "ortoo.v1.LockRequest"),
    ("ortoo.v1.LockAnswer", "ortoo.v1.LockResult"),
    ("ortoo.v1.GiveBack", "ortoo.v1.Redeliver"),
    ("who", "process"),
}
"""Names of messages and oneofs that changed. They are not on the wire."""
CONFIG = json.dumps({"version": "v2", "modules": [{"path": "protos"}], "breaking": {"use": ["WIRE"]}})


def broken(folder: Path, older: Path) -> str:
    """Differences on the wire from the older contracts, one a line."""
    words = ["buf", "breaking", "--config", CONFIG, "--against", str(older)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 100), done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if not is_rename(line))


def is_rename(line: str) -> bool:
    """Whether a difference is only another name of the same message or oneof."""
    found = re.search(r'(?:changed type from|moved from oneof) "([^"]+)" to (?:oneof )?"([^"]+)"', line)
    return found is not None and found.groups() in RENAMED


@pytest.mark.parametrize("older", CONTRACTS, ids=lambda one: one.stem)
def test_whatever_an_older_version_says_means_the_same(older: Path) -> None:
    """Every message, field and call of the older version exists, with its number and its type."""
    assert broken(ROOT, older) == ""


def test_another_number_would_be_seen(tmp_path: Path) -> None:
    """The check can fail: a planted change of one field's number is named."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    file = tmp_path / "protos/ortoo/v1/namesrv.proto"
    text = file.read_text()
    planted = re.sub(r"(message DeleteUserRequest \{[^}]*string access_key = )1;", r"\g<1>2;", text)
    assert planted != text
    file.write_text(planted)
    assert "DeleteUserRequest" in broken(tmp_path, CONTRACTS[0])

"""The linter's bans and the import contracts fire; a rule that cannot fail protects nothing."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

BIN = Path(sys.executable).parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
BANNED = SETTINGS["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]


def ruff(code: str, name: str) -> str:
    """The linter's output for `code` in a file `name`."""
    command = [str(BIN / "ruff"), "check", "--no-cache", "--output-format=concise", "--select=TID251"]
    done = subprocess.run(
        [*command, f"--stdin-filename={name}", "-"], input=code, capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout


@pytest.mark.parametrize("banned", sorted(BANNED))
def test_a_banned_function_is_refused_with_its_replacement(banned: str) -> None:
    """Each shortcut to time, randomness, tasks or the disk is refused, and the message names the replacement."""
    module = banned.rsplit(".", 1)[0]
    said = ruff(f"import {module}\n\nprint({banned})\n", "services/enode/src/ortoo/enode/planted.py")
    assert "TID251" in said
    assert BANNED[banned]["msg"] in said


@pytest.mark.parametrize(
    ("owner", "code"),
    [
        ("libs/common/src/ortoo/common/process/clock.py", "import time\n\nprint(time.time())\n"),
        ("libs/common/src/ortoo/common/process/randomness.py", "import random\n\nprint(random.random())\n"),
        ("libs/common/src/ortoo/common/process/background.py", "import asyncio\n\nprint(asyncio.create_task)\n"),
        ("services/enode/src/ortoo/enode/disk/disk.py", "import os\n\nprint(os.fdatasync)\n"),
    ],
)
def test_the_owner_of_a_banned_function_exists_and_may_use_it(owner: str, code: str) -> None:
    """Each ban has one owner module, which exists."""
    assert (ROOT / owner).is_file()
    assert "TID251" not in ruff(code, owner)


def sources(to: Path) -> None:
    """Copy every distribution's modules into one folder, as one `ortoo`."""
    for src in (*ROOT.glob("libs/*/src/ortoo"), *ROOT.glob("services/*/src/ortoo")):
        shutil.copytree(src, to / "ortoo", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def contracts(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the import contracts of this repository over the modules in `folder`."""
    command = [str(BIN / "lint-imports"), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd=folder, check=False)


PLANTED = {
    "a service imports another": ("snode/app.py", "import ortoo.enode.app", "services meet only on the wire"),
    "common imports a service": ("common/process/clock.py", "import ortoo.snode.app", "services meet only on the wire"),
    "production imports the fakes": ("client/__init__.py", "import ortoo.testing", "services meet only on the wire"),
    "the command imports the wire": ("cli/app.py", "import ortoo.v1", "the command uses the client"),
    "the command imports a service": ("cli/app.py", "import ortoo.enode.app", "`dev` alone"),
    "the log imports the store": ("enode/log/frame.py", "import ortoo.enode.store.store", "in the enode"),
    "the log imports grpc": ("enode/log/frame.py", "import grpc", "bytes know nothing"),
    "a decision imports protobuf": (
        "snode/topics/group_settings.py",
        "from ortoo.v1 import topic_pb2",
        "stops at the door",
    ),
    "a decision imports asyncio": ("namesrv/decisions/process_leases.py", "import asyncio", "pure modules"),
    "the batch's encoding imports the wire": ("common/records/batch.py", "import ortoo.v1", "what travels"),
    "the client imports numpy": ("client/__init__.py", "import numpy", "no numpy"),
}


def test_an_import_across_a_border_is_refused(tmp_path: Path) -> None:
    """Each contract breaks when its forbidden import is planted, and the message names that import."""
    sources(tmp_path)
    lines = {}
    for crime, (name, line, _) in PLANTED.items():
        module = tmp_path / "ortoo" / name
        text = f"{module.read_text()}\n{line}\n"
        module.write_text(text)
        lines[crime] = len(text.splitlines())

    done = contracts(tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    broken = [row for row in done.stdout.splitlines() if " BROKEN" in row]
    for crime, (name, _, contract) in PLANTED.items():
        assert any(contract in row for row in broken), f"{crime}\n{done.stdout}"
        package = ".".join(Path("ortoo", name).with_suffix("").parts).removesuffix(".__init__")
        assert re.search(rf"{package} -> \S+ \(l\.(\d+, l\.)*{lines[crime]}\)", done.stdout), f"{crime}\n{done.stdout}"


def test_every_contract_is_known_by_name() -> None:
    """Every contract has a name, which the reader sees when it breaks."""
    names = [contract["name"] for contract in SETTINGS["importlinter"]["contracts"]]
    assert len(names) == len(set(names))
    assert all(names)

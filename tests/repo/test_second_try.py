"""Who gets a second try, and that the first one is not hidden."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILS_ONCE = """
import pytest
from pathlib import Path

{mark}
def test_fails_once():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the words of the first failure"
"""


@pytest.mark.parametrize(
    ("folder", "mark", "passes"),
    [("e2e", "", True), ("e2e", "@pytest.mark.one_try", False), ("contract", "", False), ("unit", "", False)],
)
def test_a_second_try_is_for_real_processes_and_never_silent(
    tmp_path: Path, folder: str, mark: str, passes: bool
) -> None:
    """A test that fails once passes in some folders, with its first failure in full; elsewhere it fails."""
    tests = tmp_path / "tests"
    (tests / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tests/conftest.py", tests)
    (tests / folder / "test_it.py").write_text(FAILS_ONCE.format(mark=mark))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*command, "--rootdir", tmp_path, tests], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is passes, done.stdout
    assert ("FAILED AT THE FIRST TRY" in done.stdout) is passes
    assert "the words of the first failure" in done.stdout

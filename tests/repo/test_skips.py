"""Every skipped test is reported: `make test` ends with one list, and each reason states the remedy."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, Tree
from tests.skips import text_of

SUITE = """
import pytest


@pytest.mark.parametrize("number", range(3))
def test_skipped(number):
    pytest.skip("NO GO, the client was NOT tested; install Go")


@pytest.mark.image
def test_image():
    pass


@pytest.mark.skipif(True, reason="NO JAVA; install it")
def test_marked():
    pass


def test_done():
    pass
"""
WITHOUT_MODULE = 'import pytest\n\npytest.importorskip("no_such_module", reason="no module; run `make module`")\n'
SETTINGS = "[pytest]\nmarkers =\n    image: builds the image (`make image-check` runs these alone)\n    crash: kills\n"
HOOKS = "from tests import skips\n\n\ndef pytest_configure(config):\n    skips.watch(config)\n"


def listed(folder: Path, *options: str) -> dict[str, int]:
    """The list that a run of the small suite writes."""
    written = {
        "conftest.py": HOOKS, "test_one.py": SUITE, "test_two.py": WITHOUT_MODULE, "pytest.ini": SETTINGS
    }  # fmt: skip
    for name, text in written.items():
        (folder / name).write_text(text)
    file = folder / "build/found.json"
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not image and not crash",
        *options,
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ORTOO_SKIPS": str(file), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environ.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = json.loads(file.read_text())
    return found


@pytest.mark.timeout(700)
def test_a_run_lists_each_reason_once_with_its_count(tmp_path: Path) -> None:
    """Skipped tests, files skipped for a missing module, and kinds that `-m` leaves out, the same with workers."""
    wanted = {
        "NO GO, the client was NOT tested; install Go": 3,
        "NO JAVA; install it": 1,
        "no module; run `make module`": 1,
        "image: builds the image (`make image-check` runs these alone)": 1,
    }
    assert listed(tmp_path) == wanted
    assert listed(tmp_path, "-p", "xdist", "-n", "2") == wanted


def test_lists_of_several_runs_are_one(tmp_path: Path) -> None:
    """Counts add up, and a run that did not end is not taken for one that left nothing out."""
    first, second = tmp_path / "process-tests.json", tmp_path / "spark-tests.json"
    first.write_text(json.dumps({"NO GO; install it": 2, "NO JAVA; install it": 1}))
    second.write_text(json.dumps({"NO JAVA; install it": 4}))
    head, *lines = text_of([first, second]).splitlines()
    assert head.startswith("NOT RUN")
    assert lines == ["     5  NO JAVA; install it", "     2  NO GO; install it"]
    second.unlink()
    assert "the run of spark-tests did not end" in text_of([first, second])
    first.write_text("{}")
    assert text_of([first]) == "NOTHING WAS LEFT OUT\n"


def test_make_test_ends_with_the_list() -> None:
    """Each run writes the list that is read at the end, and the status is that of the tests."""
    text = (ROOT / "Makefile").read_text()
    runs = ("spark-tests", "official-tests", "console-tests", "process-tests", "quick-tests")
    assert f"RUNS := {' '.join(runs)}\n" in text
    assert "$(MAKE) -k -j6 --output-sync=target $(RUNS) types || status=$$?; " in text
    assert "$(PY) -m tests.skips $(RUNS:%=$(SKIPS)/%.json); exit $$status" in text
    for target in runs:
        assert re.search(rf"@ORTOO_SKIPS=\$\(SKIPS\)/{target}.json (nice -n 5 )?\$\(PYTEST\)", text)


def left_out_silently(makefile: str, folders: Iterable[str]) -> list[str]:
    """Folders of tests that no run of `make test` collects, so that its list cannot name their tests."""
    sources = makefile.replace("\\\n", " ").splitlines()
    collected = {
        word
        for line in sources
        if re.match(r"(?:SLOW|QUICK)_TESTS :=|\t@ORTOO_SKIPS=", line)
        for word in re.findall(r"\btests/\w+", line)
    }
    return sorted(set(folders) - collected)


def test_make_test_collects_every_folder_of_tests(tree: Tree) -> None:
    """Tests that `make test` does not run are left out by their marker, which the list of skipped tests shows."""
    folders = {"/".join(name.split("/")[:2]) for name in tree.named(".py", below="tests/") if "/test_" in name}
    assert left_out_silently(tree.text("Makefile"), folders) == []


def test_the_rule_on_folders_fires() -> None:
    """A folder of tests that no run names is found; a target that does not belong to `make test` does not count."""
    runs = "SLOW_TESTS := $(wildcard tests/a)\nb:\n\t@ORTOO_SKIPS=b.json pytest \\\n\t  tests/b\n"
    makefile = runs + "c:\n\t@pytest tests/c\n"
    assert left_out_silently(makefile, ("tests/a", "tests/b", "tests/c")) == ["tests/c"]


def test_every_reason_says_what_would_make_it_run(tree: Tree) -> None:
    """After a semicolon it names the remedy: install, run, or start as another user."""
    speechless = [
        f"{name}:{node.lineno}"
        for name in tree.named(".py", below="tests/")
        if any(call in tree.text(name) for call in CALLS)
        for node in ast.walk(ast.parse(tree.text(name)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS and not _helps(node)
    ]
    assert speechless == []


CALLS = frozenset({"pytest.skip", "pytest.importorskip", "pytest.mark.skipif", "pytest.mark.skip"})


def _helps(call: ast.Call) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"] or call.args[:1]
    return any(f"; {word} " in ast.unparse(given[0]) for word in ("install", "run"))

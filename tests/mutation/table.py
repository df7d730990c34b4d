"""Changes the deciding modules in thousands of small ways, and counts the changes that the quick tests notice.

python -m tests.mutation.table [--processes N] [--ending DIGITS] [NAME...]

mutmut makes all mutants of a module at once. It tries each in a fork of a process that has imported everything, with
only the tests that execute the changed function. It needs one folder of sources, so the services are copied into one
below build/mutants. `equivalent.txt` names the mutants without a visible effect, with the reason.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import digits

from tests.mutation.modules import MODULES, Mutated

ROOT = Path(__file__).resolve().parents[2]
STAGE = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
KILLED_MIN_PERCENT = 85
SURVIVED = 0
NO_TESTS = 33
KINDS = {SURVIVED: "survived", NO_TESTS: "no tests", 5: "no tests", 34: "skipped", None: "not tried", 2: "not tried"}
"""The meaning of mutmut's numbers; every other one is a mutant noticed by a failure, a crash or a timeout."""
HANG_S = 30
"""The time after which a test hangs; the slowest of these takes six seconds."""
CONFTEST = """\
import pytest
from hypothesis import settings

settings.register_profile("mutants", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("mutants")
"""
SETTINGS = """\
[tool.mutmut]
source_paths = ["src"]
only_mutate = {files}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:xdist"]
timeout_multiplier = 5.0
timeout_constant = 1.0
do_not_mutate_patterns = ["_log\\\\."]
track_dependencies = false
use_git_change_detection = false

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
pythonpath = ["."]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
timeout = {hang_s}
markers = {markers}
"""


def stage(folder: Path, mutated: Mutated) -> None:
    """Prepare the folder for mutmut: sources, tests, and its settings."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for role in ("enode", "snode"):
        target = folder / "src" / "ortoo" / role
        shutil.copytree(ROOT / "services" / role / "src" / "ortoo" / role, target, ignore=ignored)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__", "spark", "deploy"))
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    tests = [f"tests/{one}" for one in mutated.tests]
    chosen = {"files": mutated.files, "tests": tests, "markers": markers}
    texts = {name: json.dumps(value) for name, value in chosen.items()}
    (folder / "pyproject.toml").write_text(SETTINGS.format(**texts, hang_s=HANG_S))


def outcomes(folder: Path) -> Iterator[tuple[str, str]]:
    """Each mutant's name and result."""
    for file in sorted((folder / "mutants").rglob("*.meta")):
        for name, code in json.loads(file.read_text())["exit_code_by_key"].items():
            yield name, KINDS.get(code, "killed")


def equivalent() -> Mapping[str, str]:
    """The names of equivalent mutants, with the reason."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    return {name: reason.strip() for name, _, reason in (line.partition("  ") for line in lines)}


def measured(name: str, processes: int, ending: str) -> bool:
    """Try the mutants of one part whose numbers have this ending; whether enough of them were noticed."""
    folder = STAGE / name.replace(" ", "_")
    stage(folder, MODULES[name])
    command = [
        sys.executable,
        "-m",
        "mutmut",
        "run",
        "--max-children",
        str(processes),
        *(f"*{digit}" for digit in ending),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    known = equivalent()
    told = [(one, kind) for one, kind in outcomes(folder) if one not in known and one[-1] in (ending or digits)]
    if not told or any(kind == "not tried" for _, kind in told):
        print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)  # noqa: T201
    counted = Counter(kind for _, kind in told)
    left = [one for one, kind in told if kind not in ("killed", "skipped")]
    (folder / "left.txt").write_text("".join(f"{one}\n" for one in left))
    total = len(told) - counted["skipped"]
    percent = 100 * counted["killed"] / max(total, 1)
    print(f"| {name} | {total} | {counted['killed']} | {percent:.0f} % | {len(left)} |", flush=True)  # noqa: T201
    return percent >= KILLED_MIN_PERCENT


def main(arguments: Sequence[str]) -> int:
    """Measure those parts, or all; returns the number of parts with too many survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.table")
    parser.add_argument("names", nargs="*", choices=[[], *MODULES], metavar="NAME")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="mutants to try at once")
    parser.add_argument("--ending", default="", help="try a sample: those whose numbers end with one of these digits")
    asked = parser.parse_args(arguments)
    return sum(not measured(name, asked.processes, asked.ending) for name in asked.names or MODULES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

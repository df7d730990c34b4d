"""What a run of the tests left out, and the one list of it that `make test` ends with.

Every run writes what it skipped, by reason, into the file that ORTOO_SKIPS names, and of each kind of tests that `-m`
left out how many there are. `python -m tests.skips FILE...` adds those files up.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "ORTOO_SKIPS"
KEY = "ortoo_left_out"
"""Under which name a worker of pytest-xdist tells its controller what was left out."""


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test, or a file of them, was skipped."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")


def counted(reports: Iterable[Any]) -> Counter[str]:
    """Reason to the number of reports; a file that several workers skipped while they collected counts once."""
    files = {(report.nodeid, reason_of(report)) for report in reports if isinstance(report, pytest.CollectReport)}
    tests = (reason_of(report) for report in reports if not isinstance(report, pytest.CollectReport))
    return Counter(tests) + Counter(reason for _, reason in files)


class SkipList:
    """Notes what one run leaves out and writes it at the end."""

    def __init__(self, file: Path, markers: Iterable[str], expression: str) -> None:
        """`markers` are pytest's lines about them, `NAME: what it means`; `expression` is what `-m` says."""
        self._file = file
        lines = (line.partition(":") for line in markers)
        named = re.findall(r"\w+", expression)
        self._markers = {name: text.strip() for name, _, text in lines if name in named}
        self._left_out: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """A kind of tests is left out by `-m`; what its marker says is the reason."""
        for item in items:
            for name in sorted({mark.name for mark in item.iter_markers()} & self._markers.keys()):
                self._left_out[f"{name}: {self._markers[name]}"] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker tells its controller, who has collected nothing."""
        told = getattr(session.config, "workeroutput", None)
        if told is not None:
            told[KEY] = dict(self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Workers collect the same tests, so that each of them has all of what is left out."""
        self._left_out |= Counter(getattr(node, "workeroutput", {}).get(KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The controller, or the only process, writes; workers have no terminal."""
        found = counted(terminalreporter.stats.get("skipped", ())) + self._left_out
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(found), encoding="utf-8")


def text_of(files: Sequence[Path]) -> str:
    """The list: each reason once, with its count; a run that wrote nothing is named."""
    found: Counter[str] = Counter()
    unknown = []
    for file in files:
        if file.exists():
            found.update(json.loads(file.read_text(encoding="utf-8")))
        else:
            unknown.append(f"     ?  the run of {file.stem} did not end, so nobody knows what it left out")
    lines = [f"{number:6}  {reason}" for reason, number in sorted(found.items(), key=lambda one: (-one[1], one[0]))]
    if not lines and not unknown:
        return "NOTHING WAS LEFT OUT\n"
    return "\n".join(("NOT RUN (how many tests or files, and what would make them run):", *lines, *unknown)) + "\n"


def watch(config: pytest.Config) -> None:
    """Have a run write its list, if ORTOO_SKIPS names a file for it."""
    file = os.environ.get(VARIABLE)
    if file:
        found = SkipList(Path(file), config.getini("markers"), config.getoption("markexpr") or "")
        config.pluginmanager.register(found, "ortoo-skips")


if __name__ == "__main__":
    sys.stdout.write(text_of([Path(word) for word in sys.argv[1:]]))

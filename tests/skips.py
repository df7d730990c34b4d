"""The tests that a run left out, and the one list of them with which `make test` ends.

Every run writes the skipped tests, by reason, into the file that ORTOO_SKIPS names. It also writes the number of tests
of each kind that `-m` left out. `python -m tests.skips FILE...` adds those files up.
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
"""The key under which a worker of pytest-xdist reports its skipped tests to the controller."""


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason why a test, or a file of tests, was skipped."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")


def counted(reports: Iterable[Any]) -> Counter[str]:
    """Reason to the number of reports; a file that several workers skipped at collection counts once."""
    files = {(report.nodeid, reason_of(report)) for report in reports if isinstance(report, pytest.CollectReport)}
    tests = (reason_of(report) for report in reports if not isinstance(report, pytest.CollectReport))
    return Counter(tests) + Counter(reason for _, reason in files)


class SkipList:
    """Records the tests that one run leaves out and writes them at its end."""

    def __init__(self, file: Path, markers: Iterable[str], expression: str) -> None:
        """`markers` are pytest's lines about them, `NAME: description`; `expression` is the value of `-m`."""
        self._file = file
        lines = (line.partition(":") for line in markers)
        named = re.findall(r"\w+", expression)
        self._markers = {name: text.strip() for name, _, text in lines if name in named}
        self._left_out: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """`-m` left tests of a kind out; the description of its marker is the reason."""
        for item in items:
            for name in sorted({mark.name for mark in item.iter_markers()} & self._markers.keys()):
                self._left_out[f"{name}: {self._markers[name]}"] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker reports to its controller, which has collected nothing."""
        told = getattr(session.config, "workeroutput", None)
        if told is not None:
            told[KEY] = dict(self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Workers collect the same tests, so that each of them has the whole list."""
        self._left_out |= Counter(getattr(node, "workeroutput", {}).get(KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The controller, or the only process, writes; workers have no terminal."""
        found = counted(terminalreporter.stats.get("skipped", ())) + self._left_out
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(found), encoding="utf-8")


def text_of(files: Sequence[Path]) -> str:
    """The list: each reason once, with its count. A run that wrote nothing is named."""
    found: Counter[str] = Counter()
    unknown = []
    for file in files:
        if file.exists():
            found.update(json.loads(file.read_text(encoding="utf-8")))
        else:
            unknown.append(f"     ?  the run of {file.stem} did not end; its skipped tests are unknown")
    lines = [f"{number:6}  {reason}" for reason, number in sorted(found.items(), key=lambda one: (-one[1], one[0]))]
    if not lines and not unknown:
        return "NOTHING WAS LEFT OUT\n"
    return "\n".join(("NOT RUN (number of tests or files, and the remedy):", *lines, *unknown)) + "\n"


def watch(config: pytest.Config) -> None:
    """Let a run write its list, if ORTOO_SKIPS names a file for it."""
    file = os.environ.get(VARIABLE)
    if file:
        found = SkipList(Path(file), config.getini("markers"), config.getoption("markexpr") or "")
        config.pluginmanager.register(found, "ortoo-skips")


if __name__ == "__main__":
    sys.stdout.write(text_of([Path(word) for word in sys.argv[1:]]))

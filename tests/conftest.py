"""What every test gets: properties that never fail for being slow, and a second try for what races with the machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

# The machine may be busy, so time decides nothing; a failing example prints the line that replays it.
settings.register_profile("ortoo", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("ortoo")

SECOND_TRY = frozenset({"integration", "e2e", "official", "deploy"})
"""Folders whose tests look at real processes from outside, while others want the same processors."""


@pytest.fixture(autouse=True)
def _logs_are_left_as_they_were() -> Iterator[None]:
    """How loud a process is belongs to all of it: a command that is called within a test must not silence the next."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Give such tests a second try; not those that count messages, where one loss in a hundred runs is a loss."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in SECOND_TRY and item.get_closest_marker("one_try") is None:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show each first try that failed in full: that the second one passed does not explain it."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"FAILED AT THE FIRST TRY: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)

"""What every test gets: properties that never fail for being slow, and logs as they were. No test gets a second try."""

import gc
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from ortoo.common.machine.allocator import spare_what_stays
from tests import skips

EXAMPLES = int(os.environ.get("ORTOO_EXAMPLES", "60"))
"""How many each property gets that does not say so itself; `make crash` takes many more."""


# The machine may be busy, so time decides nothing; a failing example prints the line that replays it.
settings.register_profile("ortoo", deadline=None, max_examples=EXAMPLES, print_blob=True)
settings.load_profile("ortoo")


def pytest_configure(config: pytest.Config) -> None:
    """What a run leaves out is written down where `make test` asks for it."""
    skips.watch(config)


# What is loaded and collected now stays: a fifth of the time that it takes would go into looks for garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Thousands of tests and modules stay: the collector passes over them, as it does in a role."""
    spare_what_stays()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _processes_are_forked() -> Iterator[None]:
    """Roles and commands begin without the second that their imports take; see `ortoo.testing.forks.fork_server`."""
    from ortoo.testing.forks.spawning import end_server, forking

    with forking():
        yield
    end_server()


@pytest.fixture(autouse=True)
def _logs_are_left_as_they_were() -> Iterator[None]:
    """How loud a process is belongs to all of it: a command that is called within a test must not silence the next."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)

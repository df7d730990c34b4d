"""Settings of all tests: properties do not fail for being slow, and logs stay unchanged. No test is retried."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ortoo.common.grpc.transport import H2Transport, SocketTransport, Transport, using_transport
from ortoo.common.logs.logger import restored_configuration
from ortoo.common.machine.allocator import freeze_startup_objects
from tests import skips

EXAMPLES = int(os.environ.get("ORTOO_EXAMPLES", "60"))
"""Examples for each property without its own number; `make crash` takes many more."""


class CoreTransport(SocketTransport):
    """The transport of grpcio's core, also for roles whose settings name another one."""

    def on_wire(self, wire: str) -> Transport:
        """Returns itself."""
        return self


TRANSPORTS = {"grpc": CoreTransport(), "h2": H2Transport()}

# The machine may be busy, so there is no deadline; a failing example prints the line that replays it.
settings.register_profile("ortoo", deadline=None, max_examples=EXAMPLES, print_blob=True)
settings.load_profile("ortoo")


def pytest_configure(config: pytest.Config) -> None:
    """Write down the skipped tests where `make test` asks for it."""
    skips.watch(config)


# Loaded modules and collected tests stay: garbage collections would take a fifth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Exclude thousands of tests and modules from garbage collection, as a role does."""
    freeze_startup_objects()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _processes_are_forked() -> Iterator[None]:
    """Fork roles and commands, which saves the second of their imports; see `ortoo.verification.forks.fork_server`."""
    from ortoo.verification.forks.spawning import end_server, forking

    with forking():
        yield
    end_server()


@pytest.fixture(params=TRANSPORTS)
def each_transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the transport of all servers that the test starts; the test runs once for each."""
    name: str = request.param
    with using_transport(TRANSPORTS[name]):
        yield name


@pytest.fixture(autouse=True)
def _logs_are_left_as_they_were() -> Iterator[None]:
    """Restore the log level, which is process-wide: a command called in a test must not silence the next test."""
    with restored_configuration():
        yield

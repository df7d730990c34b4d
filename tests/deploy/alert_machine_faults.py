"""Faults of machines and of their files, for the alert tests: clock, file descriptors, certificates."""

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ortoo.verification.servers.ports import free_ports
from tests.deploy.alert_scene import Scene
from tests.integration.certificates import Authority, Certificate

WRONG_MS = 5_000
"""A clock that is late by this time delays nothing but is noticed."""


@asynccontextmanager
async def late_clock(scene: Scene) -> AsyncIterator[None]:
    """The clock of an enode is 5 s late."""
    scene.enode.ail(clock_behind_ms=WRONG_MS)
    yield
    scene.enode.ail(clock_behind_ms=0)


@asynccontextmanager
async def few_descriptors(scene: Scene) -> AsyncIterator[None]:
    """The limit of a snode is little more than the number of its open descriptors."""
    soft, hard = resource.prlimit(scene.snode.pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{scene.snode.pid}/fd").iterdir()))
    resource.prlimit(scene.snode.pid, resource.RLIMIT_NOFILE, (used * 100 // 85, hard))
    yield
    resource.prlimit(scene.snode.pid, resource.RLIMIT_NOFILE, (soft, hard))


def valid_certificate(authority: Authority) -> Certificate:
    """The certificate of the snode in a clean run; the files are replaced at each call."""
    return authority.sign_dated("snode", "localhost", begins_days=-1, ends_days=365)


async def tls_environ(folder: Path) -> dict[str, object]:
    """The settings with which a snode serves TLS."""
    made = valid_certificate(await Authority.make(folder))
    return {
        "TLS_LISTEN_ADDRESS": f"127.0.0.1:{free_ports(1)[0]}",
        "TLS_CERTIFICATE_FILE": str(made.certificate_file),
        "TLS_KEY_FILE": str(made.key_file),
    }


@asynccontextmanager
async def expiring_certificate(scene: Scene) -> AsyncIterator[None]:
    """The certificate of a snode was valid for almost a year, and expires in half a day."""
    authority = Authority(Path(str(scene.snode.environ["TLS_CERTIFICATE_FILE"])).parent)
    authority.sign_dated("snode", "localhost", begins_days=-300, ends_days=0.5)
    yield
    valid_certificate(authority)

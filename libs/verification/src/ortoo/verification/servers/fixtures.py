"""Fixtures for tests of several services; the tests' conftest.py names this module as a plugin."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.processes import ProcessCluster, process_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One name server, one enode and one snode in this process."""
    async with open_cluster(tmp_path) as opened:
        yield opened


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    """One name server, one enode and one snode, each a separate process."""
    async with process_cluster(tmp_path) as started:
        yield started

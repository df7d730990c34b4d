"""`kill -9` of every role while messages flow: nothing acknowledged is lost, nothing is stored twice."""

from pathlib import Path

import pytest

from tests.e2e.kill_roles import kill_dev, kill_roles


async def test_three_kills_of_each_role_lose_nothing(tmp_path: Path) -> None:
    """E-078, E-107: each role is killed three times, and all at once, and every guarantee holds."""
    ledger = await kill_roles(tmp_path, seed=3, kills=3)
    assert ledger.faults == []
    assert len(ledger.acknowledged) + len(ledger.unknown) == ledger.sent
    assert ledger.unknown == set()


async def test_kills_of_the_cluster_in_one_process_lose_nothing(tmp_path: Path) -> None:
    """`ortoo dev`, in which all roles die together, killed four times: every guarantee holds."""
    ledger = await kill_dev(tmp_path, seed=4, kills=3)
    assert ledger.faults == []
    assert ledger.unknown == set()


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
async def test_twenty_kills_of_each_role_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Each role killed twenty times at random, with two enodes, and all at once: every guarantee holds."""
    ledger = await kill_roles(tmp_path, seed=seed, kills=20, enodes=2)
    assert ledger.faults == []

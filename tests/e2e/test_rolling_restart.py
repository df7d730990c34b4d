"""Every process of a cluster is restarted in turn while messages flow."""

from pathlib import Path

import pytest

from tests.e2e.rolling_restart import rolling_members, rolling_restart

BUSY_SEND_MAX_S = 8.0
"""For a machine that runs other tests as well; `make rolling` limits sends to two seconds."""


async def test_rolling_restart_loses_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    """2 name servers, 2 enodes, 2 snodes: nothing is lost, no send fails, every exit code is 0 (E-011)."""
    said: list[str] = []
    outcome = await rolling_restart(tmp_path, rate=60, say=said.append)
    assert outcome.faults(BUSY_SEND_MAX_S) == [], said
    assert outcome.sent > 300


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_rolling_restart_of_members_loses_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    """Three replicas of one enode, three times each, followers before the leader: no send fails, nothing is lost."""
    said: list[str] = []
    outcome = await rolling_members(tmp_path, rate=60, say=said.append)
    assert outcome.faults(BUSY_SEND_MAX_S) == [], said
    assert outcome.sent > 300


@pytest.mark.crash
@pytest.mark.timeout(300)
async def test_a_rolling_update_waits_for_a_replica_that_is_behind(tmp_path: Path) -> None:
    """Its readiness probe succeeds when it has caught up, so that no send waits for it when the next one stops."""
    said: list[str] = []
    outcome = await rolling_members(tmp_path, rate=60, say=said.append, behind_mb=100)
    assert outcome.faults(BUSY_SEND_MAX_S) == [], said
    assert [one for one in said if "all replicas were ready" in one][2:], said

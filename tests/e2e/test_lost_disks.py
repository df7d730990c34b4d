"""Replicas of an enode lose their disks under full load: nothing acknowledged is lost or doubled."""

from pathlib import Path

import pytest

from tests.e2e.lost_disks import lost_disks

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


async def test_two_destroyed_disks_lose_nothing(tmp_path: Path) -> None:
    """The leader's, then a follower's: messages, offsets, leases, timers, transactions, dedup windows (G1 to G10)."""
    said: list[str] = []
    run = await lost_disks(tmp_path, rounds=2, seed=7, say=said.append)
    assert run.oracle.world.violations.all == [], said
    assert len(run.replaced_s) == 2
    assert {scenario.name for scenario in run.scenarios if not run.oracle.sent.in_topic(scenario.name)} == set()

"""Real processes: the disk of the leader of three replicas is slow, and then the disk of the leader hangs."""

from pathlib import Path

import pytest

from tests.e2e.ailing_leader import SLOW_SYNC_S, ail_leader


@pytest.mark.timeout(300)
async def test_neither_a_slow_nor_a_hung_disk_of_the_leader_stops_sends(tmp_path: Path) -> None:
    """Half of the sends do not wait for a sync of the slow disk. A leader whose disk hangs is replaced."""
    seen = await ail_leader(tmp_path)
    assert seen.slow_s < seen.usual_s + SLOW_SYNC_S
    assert seen.lost == 0

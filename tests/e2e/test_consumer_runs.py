"""Short forms of the consumer drills; the long ones are `python -m tests.e2e.NAME`."""

from pathlib import Path

import pytest

from tests.e2e.lost_snode import lose_snode
from tests.e2e.reconnect_storm import reconnect_storm
from tests.e2e.slow_replica import slow_replica
from tests.e2e.store_away import store_away


@pytest.mark.timeout(180)
async def test_members_of_a_killed_snode_go_on_at_the_other(tmp_path: Path) -> None:
    """E-106, E-240, E-044, G10: after `kill -9` every queue has one owner within 5 s, nothing is lost, offsets stay."""
    assert (await lose_snode(tmp_path, count=10)).faults == []


@pytest.mark.timeout(180)
async def test_consumers_outlive_the_membership_store(tmp_path: Path) -> None:
    """E-060: without Redis consumers continue, a new consumer gets its queues, and membership recovers with Redis."""
    seen = await store_away(tmp_path, away_s=4)
    assert seen.faults == []
    # Messages in progress when their queue moves to the new consumer come again; all others come once.
    assert seen.duplicates <= seen.received_while_away / 10


@pytest.mark.timeout(180)
async def test_clients_come_and_go_and_every_queue_ends_with_one_owner(tmp_path: Path) -> None:
    """E-056, E-125, E-133: after many joins and leaves at two snodes ownership is complete and nothing is missing."""
    assert (await reconnect_storm(tmp_path, clients=24, seconds=4)).faults == []


@pytest.mark.timeout(180)
async def test_a_frozen_member_is_evicted_and_finds_its_way_back(tmp_path: Path) -> None:
    """E-083, E-084, E-087, G13: it is evicted, loses no message, and acknowledged messages do not come again."""
    seen = await slow_replica(tmp_path, rate=1_500, seconds=4)
    assert (seen.missing, seen.early_duplicates, seen.resumed) == (0, 0, True)

"""Topics that enodes hold and the directory does not have: offered, and adopted unchanged."""

import pytest

from ortoo.common.directory.topic import Permission, Placement
from ortoo.namesrv.decisions.orphaned_topics import OrphanedTopics, StoredTopic, adopted_topic, select_named
from ortoo.namesrv.decisions.topics import Topic


@pytest.mark.parametrize(("write", "expected"), [(4, 8), (2, 2), (0, 0)])
def test_queues_are_taken_in_and_producers_stay_away_where_they_were_kept_away(write: int, expected: int) -> None:
    """Of a topic on two enodes, one has more queues than in the directory; the other one stays unchanged."""
    placements = Placement("a", 4, write), Placement("b", 4, write)
    known = {"t": Topic("t", 7, 3, Permission.READ_ONLY, placements, 1)}
    offers = OrphanedTopics()
    for enode, held in (("a", 8), ("b", 4)):
        offers.update(enode, [StoredTopic(7, "t", held)], 0)
    offered = offers.list_orphaned(known, {})
    assert [(one.name, [placement.enode for placement in one.placements]) for one in offered] == [("t", ["a"])]
    [chosen] = select_named(["t"], offered)
    taken = adopted_topic(chosen, known["t"], version=4, now_ms=9)
    assert taken.placements == (Placement("a", 8, expected), placements[1])
    assert (taken.permission, taken.version, taken.created_at_ms) == (Permission.READ_ONLY, 4, 1)
    assert offers.list_orphaned({"t": taken}, {}) == []


def test_an_adopted_topic_that_is_unknown_has_default_settings() -> None:
    """An enode stores the id, the name and the number of queues, and none of the other settings."""
    offers = OrphanedTopics()
    offers.update("b", [StoredTopic(7, "t", 4)], 0)
    offers.update("a", [StoredTopic(7, "t", 2)], 0)
    [chosen] = select_named(["t"], offers.list_orphaned({}, {}))
    placements = (Placement("a", 2, 2), Placement("b", 4, 4))
    assert adopted_topic(chosen, None, version=4, now_ms=9) == Topic("t", 7, 4, Permission.READ_WRITE, placements, 9)

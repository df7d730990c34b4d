"""The queues that a member of a group takes and drops."""

import pytest

from ortoo.client import Queue
from ortoo.client.sessions.group_view import GroupView, allocate_queues, assignment_change
from ortoo.common.errors import Invalid
from ortoo.common.groups.allocation import AllocationStrategy

QUEUES = [Queue("t", "a@e", number) for number in range(8)]


def test_members_that_want_a_topic_share_it() -> None:
    """E-125: a member without a subscription to a topic gets none of its queues. The others share all of them."""
    view = GroupView(("c", "a", "b"), {"a": frozenset({"t"}), "b": frozenset({"u"}), "c": frozenset({"t", "u"})})
    assert allocate_queues(view, "a", "t", QUEUES) == QUEUES[:4]
    assert allocate_queues(view, "c", "t", QUEUES) == QUEUES[4:]
    assert allocate_queues(view, "b", "t", QUEUES) == []


def test_nobody_and_nothing_are_no_errors() -> None:
    """A topic without members or without queues assigns no queue."""
    assert allocate_queues(GroupView(), "a", "t", QUEUES) == []
    assert allocate_queues(GroupView(("a",)), "a", "t", []) == []


def test_the_strategy_of_the_group_counts() -> None:
    """E-122 and E-124: circle alternates, config assigns the configured queues, machine room needs all zones."""
    members = ("a", "b")
    assert allocate_queues(GroupView(members, None, None, AllocationStrategy.CIRCLE), "b", "t", QUEUES) == QUEUES[1::2]
    config = GroupView(members, None, None, AllocationStrategy.CONFIG)
    assert allocate_queues(config, "b", "t", QUEUES, configured_queues=[QUEUES[3], Queue("u", "e", 0)]) == [QUEUES[3]]
    room = GroupView(members, None, None, AllocationStrategy.MACHINE_ROOM)
    assert allocate_queues(room, "a", "t", QUEUES, zones=["a"]) == QUEUES[:4]
    with pytest.raises(Invalid, match="zone of the group member"):
        allocate_queues(GroupView(members, None, {}, AllocationStrategy.ROOM_NEARBY), "a", "t", QUEUES)


def test_queues_that_went_elsewhere_are_dropped_and_new_ones_taken() -> None:
    """E-126: exactly the difference between owned and allocated queues."""
    change = assignment_change({QUEUES[0]: 100.0, QUEUES[1]: 100.0}, {"t": QUEUES[1:3]}, {"t"}, 110.0)
    assert change == ([QUEUES[0]], [QUEUES[2]])


def test_a_topic_whose_allocation_is_not_known_stays_and_an_unwanted_one_goes() -> None:
    """A missing route changes nothing; unsubscribing drops the queues."""
    other = Queue("u", "e", 0)
    change = assignment_change({QUEUES[0]: 100.0, other: 100.0}, {}, {"t"}, 110.0)
    assert change == ([other], [])


def test_a_queue_that_is_not_pulled_is_started_again() -> None:
    """More than 120 s without a pull drop it, and the next check takes it again."""
    assert assignment_change({QUEUES[0]: 0.0}, {"t": QUEUES[:1]}, {"t"}, 120.0)[0] == []
    assert assignment_change({QUEUES[0]: 0.0}, {"t": QUEUES[:1]}, {"t"}, 120.1)[0] == [QUEUES[0]]

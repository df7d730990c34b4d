"""The queue of a message group."""

import pytest

from ortoo.common.groups.queue_choice import queue_of_group


def test_a_message_group_stays_on_its_queue() -> None:
    """The choice is pinned, because another function would let a group's later messages overtake earlier ones."""
    assert [queue_of_group(f"order-{n}", range(8)) for n in range(8)] == [7, 4, 0, 3, 0, 3, 7, 4]


def test_message_groups_spread_over_all_queues() -> None:
    """A thousand groups use every one of sixteen queues, none more than twice its share."""
    counts = [0] * 16
    for number in range(1000):
        counts[queue_of_group(f"customer {number}", range(16))] += 1
    assert min(counts) > 0
    assert max(counts) < 2 * 1000 / 16


def test_a_topic_without_queues_has_none_for_a_group() -> None:
    """No queues are a named error, not a division by zero."""
    with pytest.raises(ValueError, match="has no write queues"):
        queue_of_group("g", [])

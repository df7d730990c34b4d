"""The choice of a message's queue: one rule for producers and for the servers that send for them."""

from collections.abc import Sequence
from typing import TypeVar

from ortoo.common.records.sealed_batch import crc32c

Q = TypeVar("Q")


def queue_of_group(message_group: str, queues: Sequence[Q]) -> Q:
    """The queue of a message group; `queues` are all write queues of the topic, sorted by enode and id.

    `queues` includes the queues of enodes that are down. Otherwise the message group would move to another queue during
    an outage, and its messages could overtake one another. Errors: ValueError for no queues.
    """
    if not queues:
        raise ValueError("the topic has no write queues; expected at least one for a message group")
    return queues[crc32c(message_group.encode()) % len(queues)]


def level_of_priority(priority: int, queue_count: int) -> int:
    """The queue id for a priority in a topic with one queue per level; pops by priority begin at the highest id."""
    return min(priority, queue_count - 1)

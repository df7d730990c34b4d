"""Chooses the queue of a message, and the messages with which it may share a batch."""

from collections.abc import Callable, Sequence

from ortoo.common.groups.queue_choice import level_of_priority
from ortoo.common.records.message import Message
from ortoo.common.records.message_fields import NO_RARE_FIELDS, exclusive_columns
from ortoo.snode.cluster.routes import Queue, Topic

DEDUP_ID = "DEDUP_ID"
"""The property by which an application identifies duplicates."""
ID_BYTES_MAX = 255
BatchKind = tuple[int, bool]
"""The exclusive columns of messages, and whether the messages have a dedup id. Messages of different kinds share no
batch."""
Destination = tuple[Queue, BatchKind]
PLAIN: BatchKind = (0, False)


def queue_of_level(topic: Topic, unkeyed: Queue, priority: int) -> Queue:
    """The queue for messages with this priority, on the enode of the queue `unkeyed`."""
    placement = topic.placement(unkeyed.enode)
    assert placement is not None
    return unkeyed._replace(queue_id=level_of_priority(priority, placement.write_queue_count))


def group_by_destination(
    messages: Sequence[Message], queue_of: Callable[[Message], Queue]
) -> dict[Destination, list[int]]:
    """Group the indices of messages by queue and by the kind of batch that can hold them."""
    placed: dict[Destination, list[int]] = {}
    for row, message in enumerate(messages):
        placed.setdefault((queue_of(message), kind_of(message)), []).append(row)
    return placed


def kind_of(message: Message) -> BatchKind:
    """The kind of batch that can hold a message."""
    rare = message.rare
    return PLAIN if rare is NO_RARE_FIELDS else (exclusive_columns(rare), DEDUP_ID in rare.properties)

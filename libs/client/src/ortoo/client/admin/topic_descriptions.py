"""Results of the operator's calls about topics, as plain values that convert to JSON.

Planners of Spark import this module, so it imports no message.
"""

from dataclasses import dataclass

from ortoo.client.core.queues import Queue


@dataclass(frozen=True, slots=True)
class TopicPlacement:
    """The numbers of a topic's queues on one enode. Queue ids start at 0."""

    enode: str
    read_queue_count: int
    write_queue_count: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as registered at the name server."""

    name: str
    topic_id: int
    permission: str
    """read_write, read_only, write_only or none."""
    placements: tuple[TopicPlacement, ...]
    created_at_ms: int
    message_type: str = "any"
    """The kind of messages that RocketMQ clients may send to it."""
    publish_order: tuple[tuple[str, int], ...] = ()
    """The queues that producers use, as (enode, number of its queues) in order; empty = all queues, by enode."""
    lite_ttl_ms: int = 0
    """Lite topics below a topic of type lite are deleted after this time without a message; 0 = never."""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic whose messages are kept, so that it can be restored."""

    topic: TopicInfo
    deleted_at_ms: int
    due_at_ms: int
    """The topic can be restored until this time."""


@dataclass(frozen=True, slots=True)
class TrimmedQueue:
    """A queue whose first readable offset has changed."""

    queue: Queue
    previous_begin_offset: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OrphanedTopic:
    """A topic that enodes hold and that the name server's directory does not list."""

    name: str
    topic_id: int
    placements: tuple[TopicPlacement, ...]
    conflict: str
    """The reason why it cannot be adopted, and a remedy; empty = it can be adopted."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """The result of adopting topics: the adopted topics, and the topics that could not be adopted."""

    topics: tuple[TopicInfo, ...]
    refused: tuple[OrphanedTopic, ...]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The stored range of one queue: the offsets from `begin_offset` up to, but not including, `end_offset`."""

    queue: Queue
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and the ranges of its queues; queues of enodes that cannot be reached are missing."""

    topic: TopicInfo
    queues: tuple[QueueInfo, ...]

    @property
    def unreachable_enodes(self) -> list[str]:
        """The enodes whose queues are missing."""
        answered = {one.queue.enode for one in self.queues}
        return [one.enode for one in self.topic.placements if one.read_queue_count and one.enode not in answered]

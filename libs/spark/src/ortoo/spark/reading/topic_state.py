"""The state of the topics of a read: ids, queues, and their first and next offsets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.client import NotFound, Queue
from ortoo.client.offsets.offset_lookup import search_offset
from ortoo.common.errors import Invalid
from ortoo.spark.core.link import Link
from ortoo.spark.core.read_options import ReadOptions


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one queue: `begin` to `end`, exclusive."""

    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.begin} to {self.end}"


@dataclass(frozen=True, slots=True)
class TopicState:
    """Topics at one moment. Queues of enodes that are down are in `missing` instead of `ranges`."""

    topic_ids: Mapping[str, int]
    ranges: Mapping[Queue, Range]
    missing: frozenset[Queue] = frozenset()


def topic_names(link: Link, options: ReadOptions) -> tuple[str, ...]:
    """The topics to read now; a pattern is resolved in every call. System topics match no pattern."""
    if not options.pattern:
        return options.topics
    matches = re.compile(options.pattern).fullmatch
    names = [topic.name for topic in link.run(link.admin.list_topics())]
    return tuple(name for name in sorted(names) if not name.startswith("%") and matches(name))


def current_state(link: Link, options: ReadOptions, *, missing_allowed: bool = False) -> TopicState:
    """Query the state of the topics. Errors: NotFound for a topic that does not exist, unless that is allowed."""
    topic_ids: dict[str, int] = {}
    ranges: dict[Queue, Range] = {}
    expected: set[Queue] = set()
    for name in topic_names(link, options):
        try:
            description = link.run(link.admin.describe_topic(name))
        except NotFound:
            if missing_allowed:
                continue
            raise
        topic = description.topic
        topic_ids[name] = topic.topic_id
        wanted = {
            Queue(name, placement.enode, number)
            for placement in topic.placements
            for number in range(placement.read_queue_count)
        }
        wanted = _assigned(options, name, wanted)
        expected |= wanted
        ranges |= {
            item.queue: Range(item.begin_offset, item.end_offset) for item in description.queues if item.queue in wanted
        }
    ordered = {queue: ranges[queue] for queue in sorted(ranges)}
    return TopicState(topic_ids, ordered, frozenset(expected - ranges.keys()))


def _assigned(options: ReadOptions, topic: str, queues: set[Queue]) -> set[Queue]:
    """The queues that the option `assign` names. Errors: Invalid when one of them does not exist."""
    if topic not in options.assigned:
        return queues
    named = options.assigned[topic]
    if isinstance(named, dict):
        wanted = {Queue(topic, enode, number) for enode, numbers in named.items() for number in numbers}
        unknown = sorted(wanted - queues)
    else:
        wanted = {queue for queue in queues if queue.queue_id in named}
        unknown = sorted(Queue(topic, "*", number) for number in set(named) - {q.queue_id for q in wanted})
    if unknown:
        raise Invalid(
            f"the topic {topic} has no queue {unknown[0].queue_id} on enode {unknown[0].enode}", field="assign"
        )
    return wanted


def offset_at(link: Link, queue: Queue, held: Range, time_ms: int) -> int:
    """The first offset stored at or after `time_ms`; the end of the queue if there is none."""
    found = link.run(search_offset(link.connection, queue, time_ms))
    return min(max(found, held.begin), held.end)

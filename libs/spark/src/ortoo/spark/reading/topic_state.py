"""The state of the topics of a read: ids, queues, and their first and next offsets."""

import contextlib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ortoo.client import Queue
from ortoo.common.errors import Invalid, NotFound, OrtooError, Unavailable, Unsupported
from ortoo.spark.core.link import ClusterLink
from ortoo.spark.core.read_options import ReadOptions

if TYPE_CHECKING:
    from ortoo.client import TopicDescription


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """A range of offsets in one queue, from `begin` to before `end`."""

    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.begin} to {self.end}"


@dataclass(frozen=True, slots=True)
class TopicState:
    """The topic ids and stored ranges at one moment. `unavailable` are the queues on enodes that are down."""

    topic_ids: Mapping[str, int]
    ranges: Mapping[Queue, OffsetSpan]
    unavailable: frozenset[Queue] = frozenset()
    gone: frozenset[int] = frozenset()
    """The ids of deleted topics that cannot be restored."""


def topic_names(link: ClusterLink, options: ReadOptions) -> tuple[str, ...]:
    """The names of the topics to read. A pattern is matched again in every call, and never matches system topics."""
    if not options.pattern:
        return options.topics
    matches = re.compile(options.pattern).fullmatch
    names = [topic.name for topic in link.run(link.topics.list_topics())]
    return tuple(name for name in sorted(names) if not name.startswith("%") and matches(name))


def current_state(link: ClusterLink, options: ReadOptions, *, missing_allowed: bool = False) -> TopicState:
    """Query the state of the topics. Errors: NotFound for a topic that does not exist, unless `missing_allowed`."""
    topic_ids: dict[str, int] = {}
    ranges: dict[Queue, OffsetSpan] = {}
    expected: set[Queue] = set()
    names = topic_names(link, options)
    described = _descriptions(link, names)
    if not missing_allowed and not options.pattern and len(described) < len(names):
        (missing, *_) = set(names) - {description.topic.name for description in described}
        raise NotFound(f"there is no topic {missing!r}", field="subscribe")
    for description in described:
        topic, name = description.topic, description.topic.name
        topic_ids[name] = topic.topic_id
        queues = {
            Queue(name, placement.enode, number)
            for placement in topic.placements
            for number in range(placement.read_queue_count)
        }
        queues = _assigned(options, name, queues)
        expected |= queues
        ranges |= {
            item.queue: OffsetSpan(item.begin_offset, item.end_offset)
            for item in description.queues
            if item.queue in queues
        }
    ordered = {queue: ranges[queue] for queue in sorted(ranges)}
    return TopicState(topic_ids, ordered, frozenset(expected - ranges.keys()))


def complete_state(link: ClusterLink, options: ReadOptions, *, missing_allowed: bool = False) -> TopicState:
    """The state of the topics with all their queues; waits for enodes that are down. Errors: NotFound, Unavailable."""

    def attempt() -> TopicState:
        state = current_state(link, options, missing_allowed=missing_allowed)
        if state.unavailable:
            away = ", ".join(sorted({queue.enode for queue in state.unavailable}))
            raise Unavailable(
                f"the enodes {away} are down, and the read needs all queues. Start them, or set a longer "
                "unavailableTimeoutMs",
                field="subscribe",
            )
        return state

    return link.when_available(attempt)


def _descriptions(link: ClusterLink, names: Sequence[str]) -> list["TopicDescription"]:
    """The existing topics among `names`, in one call."""
    try:
        return link.run(link.topics.describe_topics(names))
    except Unsupported:  # an older cluster
        found = []
        for name in names:
            with contextlib.suppress(NotFound):
                found.append(link.run(link.topics.describe_topic(name)))
        return found


def topics_gone(link: ClusterLink, deleted: Set[int]) -> frozenset[int]:
    """The ids in `deleted` whose topics cannot be restored. None of them if the user may not list deleted topics."""
    try:
        return frozenset(deleted - {one.topic.topic_id for one in link.run(link.topics.list_deleted_topics())})
    except OrtooError:
        return frozenset()


def _assigned(options: ReadOptions, topic: str, queues: set[Queue]) -> set[Queue]:
    """The queues that the option `assign` names. Errors: Invalid when one of them does not exist."""
    if topic not in options.assigned:
        return queues
    requested = options.assigned[topic]
    if isinstance(requested, dict):
        assigned = {Queue(topic, enode, number) for enode, numbers in requested.items() for number in numbers}
        unknown = sorted(assigned - queues)
    else:
        assigned = {queue for queue in queues if queue.queue_id in requested}
        unknown = sorted(Queue(topic, "*", number) for number in set(requested) - {q.queue_id for q in assigned})
    if unknown:
        raise Invalid(
            f"the topic {topic} has no queue {unknown[0].queue_id} on enode {unknown[0].enode}", field="assign"
        )
    return assigned


def offset_at(link: ClusterLink, queue: Queue, stored: OffsetSpan, time_ms: int) -> int:
    """The first offset in a queue stored at or after `time_ms`, or the end of the queue if there is none."""
    from ortoo.client.offsets.offset_lookup import search_offset

    offset = link.run(search_offset(link.connection, queue, time_ms))
    return min(max(offset, stored.begin), stored.end)

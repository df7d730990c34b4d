"""The operator's calls about topics and their results. All go through AdminService, so grpcurl can call them too.

Planners of Spark import this module, so it imports no message.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ortoo.client.admin.offset_target import offset_target
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import EnumNames
from ortoo.common.cluster.names import TOPICS_MAX
from ortoo.common.errors import AlreadyExists, Invalid
from ortoo.common.grpc.messages import read
from ortoo.v1 import admin_pb2, namesrv_pb2, orphaned_topics_pb2, topic_pb2, trim_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub

MESSAGE_TYPES = EnumNames("message_type", topic_pb2.MessageType, unspecified="any")
PERMISSIONS = EnumNames("permission", topic_pb2.Permission)
UINT32_MAX, UINT64_MAX = (1 << 32) - 1, (1 << 64) - 1
LISTED_AT_ONCE = 500
"""The size of a page of topics or groups."""


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


class TopicCalls:
    """The operator's calls about topics, a part of `Admin`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def create_topic(
        self,
        name: str,
        *,
        queue_count: int = 0,
        permission: str = "read_write",
        message_type: str = "any",
        enodes: Sequence[str] = (),
        lite_ttl_ms: int = 0,
    ) -> TopicInfo:
        """Create a topic with `queue_count` queues (0 = 4) on each of `enodes`, or on all live enodes.

        `message_type` restricts what RocketMQ clients may send: any, normal, fifo, delay, transaction, priority or
        lite. In a topic of type lite, a lite topic without a message for `lite_ttl_ms` is deleted (a minute to a year;
        0 = never). Errors: Invalid, or AlreadyExists. A retry after a lost answer does not raise AlreadyExists.
        """
        request = namesrv_pb2.CreateTopicRequest(
            name=name,
            read_queue_count=check_count(queue_count, "queue_count"),
            permission=PERMISSIONS.number(permission),
            message_type=MESSAGE_TYPES.number(message_type),
            enodes=enodes,
            lite_ttl_ms=check_count(lite_ttl_ms, "lite_ttl_ms", UINT64_MAX),
        )
        return topic_of((await self._call("CreateTopic", request)).topic)

    async def ensure_topic(self, name: str, *, queue_count: int = 0) -> TopicInfo:
        """Create a topic unless it exists. An existing topic keeps its queue count."""
        try:
            return await self.create_topic(name, queue_count=queue_count)
        except AlreadyExists:
            return (await self.describe_topic(name)).topic

    async def list_topics(self, *, after: str = "", limit: int = 0) -> list[TopicInfo]:
        """The topics whose names follow `after`, sorted by name; the first `limit` of them, 0 = all."""
        request = namesrv_pb2.ListTopicsRequest(after=after, limit=check_count(limit, "limit") or LISTED_AT_ONCE)
        if limit:
            return [topic_of(topic) for topic in (await self._call("ListTopics", request)).topics]
        return [topic_of(topic) async for page in self._pages("ListTopics", request) for topic in page.topics]

    async def _pages(self, method: str, request: Any) -> AsyncIterator[Any]:
        """The answers of a method that lists in pages. Older servers answer with one page."""
        while True:
            answer = await self._call(method, request)
            yield answer
            if not answer.next_after:
                return
            request.after = answer.next_after

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic with the offset range of each queue. Errors: NotFound."""
        return description_of(await self._call("DescribeTopic", admin_pb2.DescribeTopicRequest(name=name)))

    async def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """Many topics with the offset range of each queue, in one call for 1,024 names. Missing topics are left out.

        Errors: Unsupported by older servers.
        """
        found: list[TopicDescription] = []
        for first in range(0, len(names), TOPICS_MAX):
            request = admin_pb2.DescribeTopicsRequest(names=names[first : first + TOPICS_MAX])
            found += map(description_of, (await self._call("DescribeTopics", request)).topics)
        return found

    async def update_topic(
        self,
        name: str,
        *,
        read_queue_count: int = 0,
        write_queue_count: int = 0,
        permission: str = "",
        add_enodes: Sequence[str] = (),
        publish_order: Sequence[tuple[str, int]] | None = None,
        lite_ttl_ms: int | None = None,
    ) -> TopicInfo:
        """Change a topic; 0, empty and None keep a setting. The number of queues to read cannot be reduced.

        `publish_order` lists the queues that producers use, in order. Each pair (enode, count) stands for the first
        `count` queues of the enode. An empty list removes the restriction. Errors: Invalid, NotFound.
        """
        request = namesrv_pb2.UpdateTopicRequest(
            name=name,
            read_queue_count=check_count(read_queue_count, "read_queue_count"),
            write_queue_count=check_count(write_queue_count, "write_queue_count"),
            permission=PERMISSIONS.number(permission) if permission else topic_pb2.PERMISSION_UNSPECIFIED,
            add_enodes=add_enodes,
            publish_order=None if publish_order is None else _publish_order(publish_order),
            lite_ttl_ms=None if lite_ttl_ms is None else check_count(lite_ttl_ms, "lite_ttl_ms", UINT64_MAX),
        )
        return topic_of((await self._call("UpdateTopic", request)).topic)

    async def delete_topic(self, name: str, *, at_once: bool = False) -> None:
        """Delete a topic. It can be restored for one day, unless `at_once` deletes its messages. Errors: NotFound."""
        await self._call("DeleteTopic", namesrv_pb2.DeleteTopicRequest(name=name, skip_grace_period=at_once))

    async def undelete_topic(self, name: str, *, topic_id: int = 0) -> TopicInfo:
        """Restore a deleted topic with its messages and offsets. `topic_id` selects among deleted topics of this name.

        Errors: NotFound, AlreadyExists if a topic has the name now, Conflict if several deleted topics had the name.
        """
        request = namesrv_pb2.UndeleteTopicRequest(name=name, topic_id=topic_id)
        return topic_of((await self._call("UndeleteTopic", request)).topic)

    async def list_deleted_topics(self) -> list[DeletedTopic]:
        """The deleted topics that can be restored, most recently deleted first."""
        pages = self._pages("ListDeletedTopics", namesrv_pb2.ListDeletedTopicsRequest(limit=LISTED_AT_ONCE))
        return [read(DeletedTopic, one, topic=topic_of(one.topic)) async for page in pages for one in page.topics]

    async def trim_topic(
        self,
        name: str,
        *,
        time_ms: int | None = None,
        offset: int | None = None,
        offsets: Mapping[Queue, int] | None = None,
        dry_run: bool = False,
    ) -> list[TrimmedQueue]:
        """Make messages unreadable: those stored before `time_ms`, or below `offset` or the `offsets` of queues.

        `time_ms` -1 = all messages. Returns the changed queues; with `dry_run`, nothing is changed. Groups continue
        behind the trimmed messages at once. Errors: Invalid, NotFound, Unsupported by older servers, Unavailable.
        """
        target = offset_target(time_ms, offset, offsets)
        answer = await self._call("TrimTopic", trim_pb2.TrimTopicRequest(topic=name, dry_run=dry_run, **target))
        return [read(TrimmedQueue, one) for one in answer.queues]

    async def purge_topic(self, name: str, *, dry_run: bool = False) -> list[TrimmedQueue]:
        """Make all stored messages of a topic unreadable. Returns and errors: as `trim_topic`."""
        return await self.trim_topic(name, time_ms=-1, dry_run=dry_run)

    async def list_orphaned_topics(self) -> list[OrphanedTopic]:
        """Topics that enodes hold and that are missing in the name server's directory, sorted by name."""
        pages = self._pages("ListOrphanedTopics", orphaned_topics_pb2.ListOrphanedTopicsRequest(limit=LISTED_AT_ONCE))
        return [read(OrphanedTopic, one) async for page in pages for one in page.topics]

    async def adopt_topics(self, *names: str) -> Adoption:
        """Add the topics `names`, which enodes hold, to the directory; without names, all topics without a conflict.

        Errors: NotFound, or Conflict when one of `names` cannot be adopted. After an error, no topic was adopted.
        """
        answer = await self._call("AdoptTopics", orphaned_topics_pb2.AdoptTopicsRequest(names=names, all=not names))
        return Adoption(tuple(map(topic_of, answer.topics)), tuple(read(OrphanedTopic, one) for one in answer.refused))


def description_of(answer: admin_pb2.DescribeTopicResponse) -> TopicDescription:
    """A topic and the offset range of each queue."""
    name = answer.topic.name
    queues = (read(QueueInfo, it, queue=Queue(name, it.enode, it.queue_id)) for it in answer.queues)
    return TopicDescription(topic_of(answer.topic), tuple(queues))


def topic_of(topic: topic_pb2.Topic) -> TopicInfo:
    """A topic."""
    return read(
        TopicInfo,
        topic,
        permission=PERMISSIONS.name(topic.permission),
        message_type=MESSAGE_TYPES.name(topic.message_type),
        publish_order=tuple((place.enode, place.queue_count) for place in topic.publish_order.places),
    )


def check_count(value: int, field: str, most: int = UINT32_MAX) -> int:
    """Return `value`. Errors: Invalid, naming `field`, if it is negative or larger than `most`."""
    if not 0 <= value <= most:
        raise Invalid(f"{value}; expected 0 to {most}", field=field)
    return value


def _publish_order(order: Sequence[tuple[str, int]]) -> topic_pb2.PublishOrder:
    places = [
        topic_pb2.PublishPlace(enode=enode, queue_count=check_count(count, "publish_order")) for enode, count in order
    ]
    return topic_pb2.PublishOrder(places=places)

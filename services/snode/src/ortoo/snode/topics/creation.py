"""New topics: waiting until they are visible, automatic creation by a first message, creation for a group.

After a change by an operator or a snode, the caller waits until this snode and the enodes have the change.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from weakref import WeakValueDictionary

from ortoo.common.directory.topic import Placement
from ortoo.common.errors import AlreadyExists, NotFound, OrtooError
from ortoo.common.groups.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, owner_of_name
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.directory import check_client_writes
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks

TIMEOUT_S = 2.0
POLL_S = 0.01


class TopicPropagation:
    """Waits, for a bounded time, until this snode and the enodes have received changes of topics."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, *, clock: Clock) -> None:
        self._watch = watch
        self._links = links
        self._clock = clock

    async def wait_for(self, topic: Topic) -> None:
        """Wait until this snode and the topic's enodes have this version of the topic."""
        await self._watch.wait_for_version(topic.version)
        deadline_s = self._clock.monotonic_s() + TIMEOUT_S
        for placement in topic.placements:
            while not await self._is_known_at(topic, placement) and self._clock.monotonic_s() < deadline_s:
                await self._clock.sleep(POLL_S)

    async def wait_for_all(self, topics: Iterable[Topic]) -> None:
        """Wait until this snode and the enodes have these topics.

        Enodes receive changes in order, so they have all topics as soon as they have the newest one.
        """
        last = max(topics, key=lambda topic: topic.version, default=None)
        if last is not None:
            await self.wait_for(last)

    async def _is_known_at(self, topic: Topic, placement: Placement) -> bool:
        """Whether the enode has all queues of the topic; true if the enode is unreachable."""
        with contextlib.suppress(OrtooError):
            try:
                ranges = await self._links.to(placement.enode).describe_queues(topic.topic_id)
            except NotFound:
                return False
            return len(ranges) >= max(placement.read_queue_count, placement.write_queue_count)
        return True


RESERVED_PREFIX = "%"
"""Prefix of topics that belong to a group or to another topic; they are not created automatically."""
_log = get_logger("topics")


@dataclass(slots=True, eq=False)
class ProducerTopics:
    """Finds topics for clients, and creates missing topics automatically if that is enabled.

    A new topic has `queue_count` queues on each enode.
    """

    cluster: ClusterView
    propagation: TopicPropagation
    _: KW_ONLY
    auto_create: bool
    queue_count: int
    _creating: dict[str, asyncio.Event] = field(default_factory=dict, init=False)
    """Callers wait while a topic is being created, and then all retry at once. With a lock they would retry in turn: if
    the name server hangs, the last one would wait for all their timeouts."""

    async def topic(self, name: str) -> Topic:
        """The topic with this name, for a client that sends; a missing topic may be created.

        Errors: Forbidden for a retry or dead-letter topic, Invalid, NotFound if missing topics are not created
        automatically, Overloaded, Unavailable.
        """
        check_client_writes(name)
        return await self.find_or_create(name)

    def known_topic(self, name: str) -> Topic | None:
        """The topic with this name, if this snode's copy of the directory has it. It may be closed to clients."""
        return self.cluster.directory.find_topic(name)

    async def find_or_create(self, name: str) -> Topic:
        """The topic with this name; a missing topic may be created. Errors: as `topic`, without Forbidden."""
        while True:
            try:
                return await self.cluster.watch.topic(name)
            except NotFound:
                if not self.auto_create or name.startswith(RESERVED_PREFIX):
                    raise
            if (making := self._creating.get(name)) is None:
                return await self._create(name)
            await making.wait()

    async def _create(self, name: str) -> Topic:
        making = self._creating[name] = asyncio.Event()
        try:
            try:
                topic = await self.cluster.name_server.create_topic(name, queue_count=self.queue_count)
                _log.emit(log_events.TOPIC_AUTO_CREATED, topic=name)
            except AlreadyExists:  # another process created it meanwhile, with other queues
                topic = await self.cluster.name_server.get_topic(name)
            await self.propagation.wait_for(topic)
            return topic
        finally:
            del self._creating[name]
            making.set()


_groups_log = get_logger("groups")


def retry_topic(group: str) -> str:
    """The name of a group's retry topic, which has copies of nacked messages."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The name of a group's dead-letter topic."""
    return DEAD_LETTER_PREFIX + group


@dataclass(slots=True, eq=False)
class GroupTopics:
    """Finds and creates the retry topics and dead-letter topics of groups."""

    cluster: ClusterView
    propagation: TopicPropagation
    _creating: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    def topic_id(self, name: str, enode: str) -> int:
        """The id of the topic with this name; 0 if it does not exist, or has no queue on this enode."""
        topic = self.cluster.directory.find_topic(name)
        return topic.topic_id if topic is not None and topic.placement(enode) is not None else 0

    async def find(self, name: str) -> Topic | None:
        """The topic with this name, or None."""
        try:
            return await self.cluster.watch.topic(name)
        except NotFound:
            return None

    async def ensure(self, name: str, enode: str) -> int:
        """Create the topic `name`, or its queue on this enode, if it is missing; returns the topic's id.

        Errors: Unavailable, Invalid.
        """
        while not self.topic_id(name, enode):
            async with self._creating.setdefault((name, enode), asyncio.Lock()):
                if not self.topic_id(name, enode):
                    await self.propagation.wait_for(await self._create(name, enode))
        return self.topic_id(name, enode)

    async def _create(self, name: str, enode: str) -> Topic:
        if self.cluster.directory.find_topic(name) is None:
            try:
                made = await self.cluster.name_server.create_topic(name, queue_count=1, owner=owner_of_name(name))
            except AlreadyExists:
                pass
            else:
                _groups_log.emit(log_events.GROUP_TOPIC_CREATED, topic=name)
                return made
        return await self.cluster.name_server.add_topic_enode(name, enode)

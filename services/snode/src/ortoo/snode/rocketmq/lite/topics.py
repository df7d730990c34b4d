"""The stored topics of lite topics: one topic with one queue for each lite topic, created on first use."""

import asyncio
import contextlib
from collections.abc import Iterable

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.common.directory.topic import MessageType, Permission
from ortoo.common.errors import AlreadyExists, NotFound, OrtooError, Overloaded
from ortoo.common.groups.queue_choice import queue_of_group
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError
from ortoo.snode.rocketmq.protocol.names import stored_topic
from ortoo.snode.topics.creation import TopicPropagation


class LiteTopics:
    """Finds the stored topic of each lite topic, and creates missing stored topics."""

    def __init__(self, cluster: ClusterView, propagation: TopicPropagation) -> None:
        self._directory = cluster.directory
        self._name_server = cluster.name_server
        self._watch = cluster.watch
        self._propagation = propagation
        self._creating: dict[str, asyncio.Event] = {}

    def queue(self, parent: Topic, lite_topic: str) -> Queue | None:
        """The queue that stores a loaded lite topic; None if it does not exist yet."""
        topic = self._directory.find_topic(stored_topic(parent.name, lite_topic))
        return topic.read_queues()[0] if topic is not None else None

    async def load(self, parent: Topic, lite_topics: Iterable[str]) -> None:
        """Load lite topics before `queue` is called. While no name server answers, further ones stay unknown."""
        with contextlib.suppress(OrtooError):
            await self._watch.load_lite_topics([stored_topic(parent.name, name) for name in lite_topics])

    async def load_all(self, parent: Topic) -> None:
        """Load all lite topics of a parent before `queues` is called. Errors: as `load`."""
        with contextlib.suppress(OrtooError):
            await self._watch.load_all_lite_topics(parent.name)

    def queues(self, parent: Topic) -> list[Queue]:
        """The queues that store the loaded lite topics of a parent."""
        topics = map(self._directory.find_topic, self._directory.lite.names_of(parent.name))
        return [queue for topic in topics if topic is not None for queue in topic.read_queues()[:1]]

    async def ensure(self, parent: Topic, lite_topic: str, *, for_write: bool = False) -> Queue:
        """The queue that stores a lite topic; a missing one is created. `for_write` reopens an expired lite topic.

        Errors: GrpcProxyError with LITE_TOPIC_QUOTA_EXCEEDED or ILLEGAL_LITE_TOPIC, Unavailable.
        """
        name = stored_topic(parent.name, lite_topic)
        while (topic := await self._find(name)) is None or (for_write and _is_closed(parent, topic)):
            creating = self._creating.get(name)
            if creating is not None:
                await creating.wait()
                continue
            creating = self._creating[name] = asyncio.Event()
            try:
                if topic is None:
                    await self._propagation.wait_for(await self._create(parent, name))
                else:
                    await self._reopen(name)
            finally:
                del self._creating[name]
                creating.set()
        return topic.read_queues()[0]

    async def _find(self, name: str) -> Topic | None:
        """A lite topic, which is loaded if the copy does not have it, or no longer. Errors: Unavailable."""
        if (topic := self._directory.find_topic(name)) is None:
            await self._watch.load_lite_topics([name])
            topic = self._directory.find_topic(name)
        return topic

    async def _reopen(self, name: str) -> None:
        """Reopen a closed lite topic for senders. If it was deleted, wait until this snode knows the deletion."""
        try:
            await self._propagation.wait_for(await self._name_server.set_permission(name, Permission.READ_WRITE))
        except NotFound:
            await self._watch.wait_until_deleted(name)

    async def _create(self, parent: Topic, name: str) -> Topic:
        places = parent.write_queues() or parent.read_queues()
        chosen = queue_of_group(name, self._directory.available_queues(places) or places)
        try:
            return await self._name_server.create_topic(
                name, queue_count=1, enodes=(chosen.enode,), message_type=MessageType.FIFO, parent=parent.name
            )
        except AlreadyExists:  # another snode created it with other settings
            return await self._name_server.get_topic(name)
        except Overloaded as error:
            if error.field != "parent":
                raise
            raise GrpcProxyError(Code.LITE_TOPIC_QUOTA_EXCEEDED, error.message) from None


def _is_closed(parent: Topic, lite: Topic) -> bool:
    """Whether expiry has closed the lite topic. Without a lifetime, only an operator can have closed it."""
    return bool(parent.lite_ttl_ms) and not lite.writable

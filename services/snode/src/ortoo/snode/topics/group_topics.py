"""A group's own topics: %RETRY% and %DLQ%, created when they are first needed."""

import asyncio
from dataclasses import dataclass, field

from ortoo.common.errors import AlreadyExists, NotFound
from ortoo.common.process.logs import get_logger
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.topics.arrival import TopicArrival

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
_log = get_logger("groups")


def retry_topic(group: str) -> str:
    """Where messages lie that a group gave back."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages lie that a group could not process."""
    return DEAD_LETTER_PREFIX + group


@dataclass(slots=True, eq=False)
class GroupTopics:
    """Finds and makes them.

    Look into `directory`, create through `name_server`.
    """

    directory: Directory
    name_server: NameServer
    arrival: TopicArrival
    _making: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict, init=False)

    def topic_id(self, name: str, enode: str) -> int:
        """The id of a topic that has a queue on this enode; 0 if it does not exist, or not there."""
        topic = self.directory.find_topic(name)
        return topic.topic_id if topic is not None and topic.placement(enode) is not None else 0

    async def find(self, name: str) -> Topic | None:
        """A group's topic; None if there is none yet."""
        try:
            return await self.arrival.topic(name)
        except NotFound:
            return None

    async def ensure(self, name: str, enode: str) -> int:
        """The id of a topic with a queue on this enode, made if there is none. Errors: Unavailable, Invalid."""
        key = (name, enode)
        while not self.topic_id(name, enode):
            making = self._making.get(key)
            if making is not None:
                await making.wait()
                continue
            making = self._making[key] = asyncio.Event()
            try:
                await self.arrival.of(await self._make(name, enode))
            finally:
                del self._making[key]
                making.set()
        return self.topic_id(name, enode)

    async def _make(self, name: str, enode: str) -> Topic:
        if self.directory.find_topic(name) is None:
            try:
                made = await self.name_server.create_topic(name, queue_count=1)
            except AlreadyExists:
                pass
            else:
                _log.info("a group's topic was created", topic=name)
                return made
        return await self.name_server.place_topic(name, enode)

"""Topics as producers name them: where a snode is allowed to, one that does not exist is made by its first message."""

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from ortoo.common.errors import AlreadyExists, NotFound
from ortoo.common.process.logs import get_logger
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.topics.arrival import TopicArrival

RESERVED_PREFIX = "%"
"""Names of topics that belong to a group or to another topic; nobody else makes those."""
_log = get_logger("topics")


class TopicSource(Protocol):
    """Finds topics."""

    async def topic(self, name: str) -> Topic:
        """A topic. Errors: Invalid, NotFound."""
        ...


@dataclass(slots=True, eq=False)
class SendableTopics:
    """Finds topics for producers, and makes them if that is switched on.

    Topics are made with `queue_count` queues on each enode.
    """

    topics: TopicSource
    name_server: NameServer
    arrival: TopicArrival
    _: KW_ONLY
    auto_create: bool
    queue_count: int
    _making: dict[str, asyncio.Event] = field(default_factory=dict, init=False)

    async def topic(self, name: str) -> Topic:
        """A topic that may be sent to. Errors: Invalid; NotFound where none is made; Overloaded, Unavailable."""
        while True:
            try:
                return await self.topics.topic(name)
            except NotFound:
                if not self.auto_create or name.startswith(RESERVED_PREFIX):
                    raise
            making = self._making.get(name)
            if making is not None:
                await making.wait()
                continue
            return await self._make(name)

    async def _make(self, name: str) -> Topic:
        making = self._making[name] = asyncio.Event()
        try:
            try:
                topic = await self.name_server.create_topic(name, queue_count=self.queue_count)
                _log.info("a topic was made by its first message", topic=name)
            except AlreadyExists:  # somebody else made it meanwhile, with other queues
                topic = await self.name_server.get_topic(name)
            await self.arrival.of(topic)
            return topic
        finally:
            del self._making[name]
            making.set()

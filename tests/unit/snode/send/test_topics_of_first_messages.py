"""Topics that are created by their first message."""

import asyncio
from typing import Any

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.topics.creation import ProducerTopics, TopicPropagation
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock

TIMEOUT_S = 3.0


class SilentNameServer:
    """It has no topic, and does not answer the request to create one."""

    def __init__(self) -> None:
        self.is_silent = False

    async def get_topic(self, name: str) -> Topic:
        """There is none."""
        if not self.is_silent:
            raise NotFound("no such topic")
        raise await self._late()

    async def create_topic(self, name: str, *, queue_count: int) -> Topic:
        """Never answer."""
        self.is_silent = True
        raise await self._late()

    async def _late(self) -> Unavailable:
        await running_clock().sleep(TIMEOUT_S)
        return Unavailable("the name server did not answer")


@in_virtual_time
async def test_senders_to_a_topic_that_cannot_be_made_do_not_wait_for_each_other() -> None:
    """One tries, and the others retry together afterwards; each ends within two timeouts, for any number of senders."""
    name_server: Any = SilentNameServer()
    clock, links = running_clock(), None
    directory = DirectoryCache()
    watch = DirectoryWatch(directory, name_server, clock=clock, randomness=Randomness(1))
    arrival = TopicPropagation(watch, links, clock=clock)  # type: ignore[arg-type]
    sendable = ProducerTopics(ClusterView(directory, watch, name_server), arrival, auto_create=True, queue_count=4)
    ended = await asyncio.gather(*(sendable.topic("new") for _ in range(20)), return_exceptions=True)
    assert [type(one) for one in ended] == [Unavailable] * 20
    assert clock.monotonic_s() <= 2 * TIMEOUT_S + 0.1

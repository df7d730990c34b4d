"""Waits until what an operator changed is known where it matters, so that the next call can rely on it."""

import contextlib

from ortoo.common.errors import NotFound, OrtooError
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import Placement, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.pool import EnodeLinks

TIMEOUT_S = 2.0
STEP_S = 0.01


class TopicArrival:
    """Read your own writes, within a bounded time."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, *, clock: Clock) -> None:
        self._watch = watch
        self._links = links
        self._clock = clock

    async def topic(self, name: str) -> Topic:
        """A topic. Errors: Invalid, NotFound."""
        return await self._watch.topic(name)

    async def version(self, version: int) -> None:
        """Wait until this snode's directory is that new."""
        await self._watch.reached(version)

    async def of(self, topic: Topic) -> None:
        """Wait until this snode and the enodes of the topic know it."""
        await self._watch.reached(topic.version)
        deadline_s = self._clock.monotonic_s() + TIMEOUT_S
        for placement in topic.placements:
            while not await self._is_at(topic, placement) and self._clock.monotonic_s() < deadline_s:
                await self._clock.sleep(STEP_S)

    async def gone(self, name: str) -> None:
        """Wait until this snode has forgotten a topic."""
        await self._watch.gone(name)

    async def _is_at(self, topic: Topic, placement: Placement) -> bool:
        """Whether the enode has all queues; an enode that is away is not waited for."""
        with contextlib.suppress(OrtooError):
            try:
                ranges = await self._links.to(placement.enode).describe_queues(topic.topic_id)
            except NotFound:
                return False
            return len(ranges) >= max(placement.read_queue_count, placement.write_queue_count)
        return True

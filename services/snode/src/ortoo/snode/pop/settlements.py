"""Acknowledgements of many consumers on their way to the same enode: what meets there travels together."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ortoo.common.groups.pop import Finish, LeasePart, Stale
from ortoo.common.process.background import Background
from ortoo.snode.enodes.batcher import Batcher
from ortoo.snode.enodes.link import EnodeLinks

MESSAGES_MAX = 32_768
"""So many messages one request acknowledges at most, unless one consumer asks for more by itself."""
Place = tuple[str, int, str]
"""(enode, topic id, group)."""


@dataclass(slots=True)
class _Waiting:
    """What one consumer acknowledges."""

    parts: Sequence[LeasePart]
    done: "asyncio.Future[list[Stale]]"

    @property
    def messages(self) -> int:
        """How many messages."""
        return sum(count for part in self.parts for _, count in part.ranges)


@dataclass(slots=True, eq=False)
class _FinishBatcher(Batcher):
    """The acknowledgements of one group, topic and enode."""

    place: Place
    links: EnodeLinks
    waiting: deque[_Waiting] = field(default_factory=deque, init=False)

    async def drain(self) -> None:
        """Send until nothing waits; who waits when the snode stops hears that nobody knows."""
        together: list[_Waiting] = []
        try:
            while self.waiting:
                together = self._cut()
                await self._send(together)
                together = []
        finally:
            for one in (*together, *self.waiting):
                one.done.cancel()

    def _cut(self) -> list[_Waiting]:
        """Take as many as fit into one request."""
        together = [self.waiting.popleft()]
        messages = together[0].messages
        while self.waiting and messages + self.waiting[0].messages <= MESSAGES_MAX:
            together.append(self.waiting.popleft())
            messages += together[-1].messages
        return together

    async def _send(self, together: Sequence[_Waiting]) -> None:
        enode, topic_id, group = self.place
        parts = [part for one in together for part in one.parts]
        try:
            stale = await self.links.to(enode).settle(topic_id, group, parts, Finish())
        except Exception as error:
            for one in together:
                if not one.done.done():
                    one.done.set_exception(error)
            return
        for one in together:
            if not one.done.done():
                one.done.set_result(stale)


class FinishBatchers:
    """One request at a time for each group, topic and enode: the longer it takes, the more the next one carries."""

    def __init__(self, links: EnodeLinks, background: Background) -> None:
        self._links = links
        self._background = background
        self._batchers: dict[Place, _FinishBatcher] = {}

    async def finish(self, place: Place, parts: Sequence[LeasePart]) -> list[Stale]:
        """A group is done with messages. Returns, when it is durable, what leases have no more, others' included.

        Errors: as `GrpcEnodeLink.settle`.
        """
        waiting = _Waiting(parts, asyncio.get_running_loop().create_future())
        batcher = self._batchers.get(place)
        if batcher is None:
            self._drop_idle()
            batcher = self._batchers[place] = _FinishBatcher(place, self._links)
        batcher.waiting.append(waiting)
        batcher.wake(self._background, "acknowledge")
        return await waiting.done

    def _drop_idle(self) -> None:
        """A place is new so seldom that those of old groups may be looked for then."""
        for place in [place for place, batcher in self._batchers.items() if not batcher.draining]:
            del self._batchers[place]

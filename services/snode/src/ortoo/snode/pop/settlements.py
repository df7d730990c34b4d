"""Acknowledgements of many consumers on their way to the same enode: what meets there travels together."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.groups.pop import Finish, LeasePart, Stale
from ortoo.common.process.background import Background
from ortoo.snode.enodes.pool import EnodeLinks

MESSAGES_MAX = 32_768
"""So many messages one request acknowledges at most, unless one consumer asks for more by itself."""
LaneKey = tuple[str, int, str]
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


class FinishLanes:
    """One request at a time for each group, topic and enode: the longer it takes, the more the next one carries."""

    def __init__(self, links: EnodeLinks, background: Background) -> None:
        self._links = links
        self._background = background
        self._lanes: dict[LaneKey, deque[_Waiting]] = {}

    async def finish(self, key: LaneKey, parts: Sequence[LeasePart]) -> list[Stale]:
        """A group is done with messages. Returns, when it is durable, what leases have no more, others' included.

        Errors: as `EnodeLink.settle`.
        """
        waiting = _Waiting(parts, asyncio.get_running_loop().create_future())
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
            self._background.spawn("acknowledge", self._run(key, lane))
        lane.append(waiting)
        return await waiting.done

    async def _run(self, key: LaneKey, lane: deque[_Waiting]) -> None:
        together: list[_Waiting] = []
        try:
            while lane:
                together = _next(lane)
                await self._send(key, together)
                together = []
        finally:
            del self._lanes[key]
            for one in (*together, *lane):
                one.done.cancel()

    async def _send(self, key: LaneKey, together: Sequence[_Waiting]) -> None:
        enode, topic_id, group = key
        parts = [part for one in together for part in one.parts]
        try:
            stale = await self._links.to(enode).settle(topic_id, group, parts, Finish())
        except Exception as error:
            for one in together:
                if not one.done.done():
                    one.done.set_exception(error)
            return
        for one in together:
            if not one.done.done():
                one.done.set_result(stale)


def _next(waiting: deque[_Waiting]) -> list[_Waiting]:
    """Take as many as fit into one request."""
    together = [waiting.popleft()]
    messages = together[0].messages
    while waiting and messages + waiting[0].messages <= MESSAGES_MAX:
        together.append(waiting.popleft())
        messages += together[-1].messages
    return together

"""Batches acks of many consumers to the same enode into one request."""

from collections.abc import Sequence
from functools import partial

from ortoo.common.groups.pop import Finish, LeasePart, StaleMessage
from ortoo.common.grpc.request_batcher import RequestBatcher
from ortoo.common.process.background import Background
from ortoo.snode.enodes.link import EnodeLinks

MESSAGES_MAX = 32_768
"""Maximum of messages acked by one request, unless a single consumer acks more at once."""
Place = tuple[str, int, str]
"""(enode, topic id, group)."""


class FinishBatchers:
    """Batches acks for each group, topic and enode. Acks that arrive during a request are sent together in the next."""

    def __init__(self, links: EnodeLinks, background: Background) -> None:
        self._links = links
        self._background = background
        self._batchers: dict[Place, RequestBatcher[Sequence[LeasePart], list[StaleMessage]]] = {}

    async def finish(self, place: Place, parts: Sequence[LeasePart]) -> list[StaleMessage]:
        """Ack messages; returns the stale messages of the whole request when the acks are durable.

        Errors: as `GrpcEnodeLink.settle`.
        """
        batcher = self._batchers.get(place)
        if batcher is None:
            self._drop_idle()
            batcher = self._batchers[place] = RequestBatcher(
                partial(self._settle, place), self._background, size_max=MESSAGES_MAX, size_of=_count_messages
            )
        return await batcher.request(parts)

    async def _settle(self, place: Place, part_lists: Sequence[Sequence[LeasePart]]) -> Sequence[list[StaleMessage]]:
        enode, topic_id, group = place
        parts = [part for one in part_lists for part in one]
        return [await self._links.to(enode).settle(topic_id, group, parts, Finish())] * len(part_lists)

    def _drop_idle(self) -> None:
        """Remove idle batchers. Runs when a batcher is added, which is rare enough for a full scan."""
        for place in [place for place, batcher in self._batchers.items() if batcher.is_idle]:
            del self._batchers[place]


def _count_messages(parts: Sequence[LeasePart]) -> int:
    return sum(count for part in parts for _, count in part.ranges)

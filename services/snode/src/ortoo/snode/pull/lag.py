"""How far a group is behind."""

from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.pool import EnodeLinks
from ortoo.snode.pull.reading import Reading


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue: the group's offset (-1 = none yet), the end, and what lies between."""

    queue: Queue
    committed_offset: int
    end_offset: int
    messages: int


class Lag:
    """Compares committed offsets with the ends of queues."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, reading: Reading) -> None:
        self._watch = watch
        self._links = links
        self._reading = reading

    async def of(self, group: str, topic_name: str) -> list[QueueLag]:
        """The lag in each readable queue whose enode is there. Errors: NotFound, Invalid."""
        check_group_name(group)
        topic = await self._watch.topic(topic_name)
        ranges = await self._reading.queue_ranges(topic)
        lags: list[QueueLag] = []
        for enode in sorted({queue.enode for queue in ranges}):
            offsets = await self._links.to(enode).query_offsets(topic.topic_id, group)
            for queue, held in ranges.items():
                if queue.enode == enode:
                    committed = offsets.get(queue.queue_id, -1)
                    behind = held.end_offset - max(committed, held.begin_offset)
                    lags.append(QueueLag(queue, committed, held.end_offset, max(0, behind)))
        return lags

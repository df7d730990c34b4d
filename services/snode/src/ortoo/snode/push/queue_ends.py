"""Where queues end, asked of their enodes for one look at all sessions."""

from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import EnodeLinks


@dataclass(slots=True)
class QueueEnds:
    """Each topic of an enode is asked for once, and one that does not answer is asked for nothing more."""

    links: EnodeLinks
    _known: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)

    async def of(self, queue: Queue, topic_id: int) -> int:
        """The end of a queue; 0 when it cannot be told."""
        enode, key = queue.enode, (queue.enode, topic_id)
        if key not in self._known and enode not in self._silent:
            try:
                ranges = await self.links.to(enode).describe_queues(topic_id)
            except OrtooError as error:
                self._known[key] = {}
                if error.retriable:
                    self._silent.add(enode)
            else:
                self._known[key] = {item.queue_id: item.end_offset for item in ranges}
        return self._known.get(key, {}).get(queue.queue_id, 0)

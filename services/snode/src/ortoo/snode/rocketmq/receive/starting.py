"""Where a group begins that pops a topic for the first time."""

from collections import OrderedDict

from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import QueueRange
from ortoo.snode.pull.reading import Reading

YOUNG_MESSAGES_MAX = 100_000
"""So many messages of a queue that lost none yet are a beginning; more are a history."""
KNOWN_MAX = 50_000


class Starting:
    """As RocketMQ does: from the beginning in a young topic, else with what comes from now on."""

    def __init__(self, watch: DirectoryWatch, reading: Reading) -> None:
        self._watch = watch
        self._reading = reading
        self._known: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def from_last(self, group: str, topic: str) -> bool:
        """Whether the group begins at the end of queues in which it has no offset. Errors: NotFound."""
        key = (group, topic)
        if key not in self._known:
            ranges = await self._reading.queue_ranges(await self._watch.topic(topic))
            self._known[key] = any(not is_young(held) for held in ranges.values())
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return self._known[key]


def is_young(held: QueueRange) -> bool:
    """Whether a queue still has all its messages, and they are not many."""
    return held.begin_offset == 0 and held.end_offset <= YOUNG_MESSAGES_MAX

"""Counts of lite topics, so that no request has to go through a million of them. Pure."""

from collections import Counter, defaultdict

from ortoo.common.cluster.names import LITE_CHECKSUM_MODULUS, lite_checksum
from ortoo.namesrv.decisions.topics import Topic


class LiteCounts:
    """The numbers, sizes and checksums of the lite topics of a directory."""

    def __init__(self) -> None:
        """Start without lite topics."""
        self.total = 0
        self.of_parents: Counter[str] = Counter()
        """The number of lite topics of each parent."""
        self._checksums: defaultdict[str, int] = defaultdict(int)

    def add(self, topic: Topic) -> None:
        """Count a topic, if it stores a lite topic."""
        if topic.parent:
            self._count(topic, 1)

    def remove(self, topic: Topic) -> None:
        """Count a topic no longer."""
        if topic.parent:
            self._count(topic, -1)
            if not self.of_parents[topic.parent]:
                del self.of_parents[topic.parent]

    def checksum_on(self, enode: str) -> int:
        """The checksum of the lite topics on an enode; 0 for an empty name."""
        return self._checksums.get(enode, 0)

    def _count(self, topic: Topic, by: int) -> None:
        self.total += by
        self.of_parents[topic.parent] += by
        one = by * lite_checksum(topic.topic_id, topic.version)
        for placement in topic.placements:
            self._checksums[placement.enode] = (self._checksums[placement.enode] + one) % LITE_CHECKSUM_MODULUS

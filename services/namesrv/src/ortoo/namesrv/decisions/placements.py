"""The queues of a topic on its enodes, and their order for producers.

Most topics have the same placements, so each set of placements is kept and sent once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b

from ortoo.common.cluster.names import check_process_name
from ortoo.common.directory.topic import Placement, PublishPlace
from ortoo.common.errors import Invalid

SHARED_SETS_MAX = 4_096
"""The number of different sets that equal values share. Further sets are correct too, but each topic has its own."""
ORDER_FIELD = "publish_order"
SET_BYTES = 24
"""The size of a set on the wire without its placements, bytes, rounded up."""


class PlacementSet(tuple[Placement, ...]):
    """The queues of a topic on each of its enodes, sorted by enode."""

    @classmethod
    def of(cls, placements: tuple[Placement, ...]) -> "PlacementSet":
        """The set with these placements. Equal sets are the same object, so that they take memory once."""
        return placements if isinstance(placements, cls) else _shared(tuple(placements))

    @cached_property
    def set_id(self) -> int:
        """The hash of the content, 64 bits; 0 = no placements. Topics and messages name a set by it."""
        if not self:
            return 0
        text = ";".join(f"{one.enode}:{one.read_queue_count}:{one.write_queue_count}" for one in self)
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") or 1

    @cached_property
    def wire_bytes(self) -> int:
        """The size on the wire, bytes, if all its numbers were large."""
        return sum(18 + len(one.enode) for one in self)


@lru_cache(maxsize=SHARED_SETS_MAX)
def _shared(placements: tuple[Placement, ...]) -> PlacementSet:
    return PlacementSet(placements)


class PlacementSetUses:
    """The sets that the topics of a directory use, each with the number of its topics."""

    def __init__(self) -> None:
        """Start without topics."""
        self.wire_bytes = 0
        """The size of all sets on the wire, each counted once."""
        self.expanded_bytes = 0
        """The size of the placements on the wire if each topic listed its own."""
        self._topic_counts: Counter[int] = Counter()
        self._set_counts: Counter[str] = Counter()
        """The number of sets that contain each enode."""

    def add(self, placements: PlacementSet) -> None:
        """Count a topic."""
        self.expanded_bytes += placements.wire_bytes
        self._topic_counts[placements.set_id] += 1
        if self._topic_counts[placements.set_id] == 1:
            self.wire_bytes += SET_BYTES + placements.wire_bytes
            self._set_counts.update(one.enode for one in placements)

    def remove(self, placements: PlacementSet) -> None:
        """Count a topic no longer."""
        self.expanded_bytes -= placements.wire_bytes
        self._topic_counts[placements.set_id] -= 1
        if not self._topic_counts[placements.set_id]:
            del self._topic_counts[placements.set_id]
            self.wire_bytes -= SET_BYTES + placements.wire_bytes
            self._set_counts -= Counter(one.enode for one in placements)

    def new_bytes(self, added: Iterable[PlacementSet]) -> int:
        """The size on the wire of those of `added` that no topic uses yet, bytes."""
        new = {one.set_id: one for one in added if one.set_id not in self._topic_counts}
        return sum(SET_BYTES + one.wire_bytes for one in new.values())

    def enodes(self) -> set[str]:
        """The enodes on which topics have queues."""
        return set(self._set_counts)


PublishOrder = tuple[PublishPlace, ...]
"""The queues in this order; empty = all queues that accept messages, by enode."""


def check_publish_order(order: Sequence[PublishPlace], write_queue_counts: Mapping[str, int]) -> None:
    """Refuse a publish order with unknown enodes or queues. Errors: Invalid.

    `write_queue_counts` has the number of the topic's queues for producers on each enode.
    """
    seen: set[str] = set()
    for number, place in enumerate(order):
        field = f"{ORDER_FIELD}[{number}]"
        check_process_name(place.enode, f"{field}.enode")
        if place.enode in seen:
            raise Invalid(f"enode {place.enode!r} is named twice; name each enode once", field=f"{field}.enode")
        seen.add(place.enode)
        most = write_queue_counts.get(place.enode)
        if most is None:
            here = ", ".join(sorted(write_queue_counts)) or "no enode"
            raise Invalid(
                f"the topic has no queues on {place.enode!r}; its queues are on {here}. Add the enode to the topic "
                "first, or leave it out of the order",
                field=f"{field}.enode",
            )
        if not 1 <= place.queue_count <= most:
            raise Invalid(
                f"{place.queue_count} queues; {place.enode} has {most} that accept messages. Give 1 to {most}, "
                "or change the order together with write_queue_count",
                field=f"{field}.queue_count",
            )


def format_order(order: Sequence[PublishPlace]) -> str:
    """The stored form of a publish order: `enode-1:4;enode-0:2`."""
    return ";".join(f"{place.enode}:{place.queue_count}" for place in order)


def parse_order(text: str) -> PublishOrder:
    """Parse the stored form of a publish order."""
    pairs = (place.rpartition(":") for place in filter(None, text.split(";")))
    return tuple(PublishPlace(enode, int(count)) for enode, _, count in pairs)

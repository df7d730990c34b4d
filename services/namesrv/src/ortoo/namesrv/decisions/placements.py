"""The queues of a topic on its enodes. Most topics have the same, so each set of placements is kept and sent once."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b

SHARED_SETS_MAX = 4_096
"""The number of different sets that equal values share. Further sets are correct too, but each topic has its own."""
SET_BYTES = 24
"""The size of a set on the wire without its placements, bytes, rounded up."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The queues of one topic on one enode. Queue ids start at 0."""

    enode: str
    read_queue_count: int
    write_queue_count: int


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

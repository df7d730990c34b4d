"""Finds the topics on an enode. Topics with the same placements are one entry, so that its size is that of the sets."""

from itertools import chain

from ortoo.common.directory.topic import Placement
from ortoo.snode.cluster.routes import Topic


class PlacementIndex:
    """The names of the topics on each enode."""

    def __init__(self) -> None:
        """Start without topics."""
        self._names: dict[int, set[str]] = {}
        """The names of the topics with the same placements, by the identity of the placements, which topics share."""
        self._sets_on: dict[str, dict[int, set[str]]] = {}
        """By enode: the entries of `_names` whose placements contain it."""

    def add(self, topic: Topic) -> None:
        """Add a topic. It must be removed before another topic with its name is added."""
        key = id(topic.placements)
        if key not in self._names:
            self._names[key] = set()
            for enode in _enodes(topic.placements):
                self._sets_on.setdefault(enode, {})[key] = self._names[key]
        self._names[key].add(topic.name)

    def remove(self, topic: Topic) -> None:
        """Remove a topic that was added."""
        key = id(topic.placements)
        self._names[key].discard(topic.name)
        if self._names[key]:
            return
        del self._names[key]
        for enode in _enodes(topic.placements):
            del self._sets_on[enode][key]
            if not self._sets_on[enode]:
                del self._sets_on[enode]

    def enodes(self) -> set[str]:
        """The enodes that have queues of topics."""
        return set(self._sets_on)

    def topics_on(self, enode: str) -> list[str]:
        """The names of the topics that have queues on an enode, sorted."""
        return sorted(chain.from_iterable(self._sets_on.get(enode, {}).values()))


def _enodes(placements: tuple[Placement, ...]) -> set[str]:
    return {one.enode for one in placements}

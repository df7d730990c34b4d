"""What a consumer takes nothing from for now: pure bookkeeping."""

from collections import Counter
from collections.abc import Collection

from ortoo.client.core.place import Queue


class Suspension:
    """Some queues, or everything."""

    __slots__ = ("_held", "_named", "everything", "queues")

    def __init__(self) -> None:
        """Begin with nothing suspended."""
        self.everything = False
        self.queues: frozenset[Queue] = frozenset()
        self._named: frozenset[Queue] = frozenset()
        self._held: Counter[Queue] = Counter()
        """Queues in which a message in order waits for its next try, and how many do."""

    def __bool__(self) -> bool:
        return self.everything or bool(self.queues)

    def __contains__(self, queue: Queue) -> bool:
        return self.everything or queue in self.queues

    def suspend(self, queues: Collection[Queue]) -> None:
        """Take nothing from these any more, or from any when none is named."""
        self.everything = self.everything or not queues
        self._named |= frozenset(queues)
        self._add_up()

    def resume(self, queues: Collection[Queue]) -> None:
        """Go on with these, or with everything when none is named."""
        if queues:
            self._named -= frozenset(queues)
        else:
            self.everything, self._named = False, frozenset()
        self._add_up()

    def hold(self, queue: Queue) -> None:
        """Take nothing more from this one until it is released as often."""
        self._held[queue] += 1
        self._add_up()

    def release(self, queue: Queue) -> None:
        """One reason less to hold it."""
        self._held[queue] -= 1
        self._held += Counter()
        self._add_up()

    def _add_up(self) -> None:
        self.queues = self._named.union(self._held)

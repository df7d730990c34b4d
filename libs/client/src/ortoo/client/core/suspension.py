"""What a consumer takes nothing from for now: pure bookkeeping."""

from collections.abc import Collection

from ortoo.client.core.place import Queue


class Suspension:
    """Some queues, or everything."""

    __slots__ = ("everything", "queues")

    def __init__(self) -> None:
        """Begin with nothing suspended."""
        self.everything = False
        self.queues: frozenset[Queue] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.queues)

    def __contains__(self, queue: Queue) -> bool:
        return self.everything or queue in self.queues

    def suspend(self, queues: Collection[Queue]) -> None:
        """Take nothing from these any more, or from any when none is named."""
        self.everything = self.everything or not queues
        self.queues |= frozenset(queues)

    def resume(self, queues: Collection[Queue]) -> None:
        """Go on with these, or with everything when none is named."""
        if queues:
            self.queues -= frozenset(queues)
        else:
            self.everything, self.queues = False, frozenset()

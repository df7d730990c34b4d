"""Which queue a message without a message group goes to, decided without I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.snode.cluster.routes import Queue


@dataclass(slots=True, eq=False)
class StickyChoice:
    """Round robin that stays on a queue while messages can still join a batch there.

    Begin at a chosen place, so that snodes do not march in step.
    """

    start: int

    def queue(self, queues: Sequence[Queue]) -> Queue:
        """The current queue."""
        return queues[self.start % len(queues)]

    def advance(self) -> None:
        """Go on to the next queue."""
        self.start += 1

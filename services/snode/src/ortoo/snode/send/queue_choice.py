"""Which queue a message without a message group goes to, decided without I/O."""

from collections.abc import Sequence

from ortoo.snode.cluster.routes import Queue


class StickyChoice:
    """Round robin that stays on a queue while messages can still join a batch there."""

    def __init__(self, start: int) -> None:
        """Begin at a chosen place, so that snodes do not march in step."""
        self._at = start

    def queue(self, queues: Sequence[Queue]) -> Queue:
        """The current queue."""
        return queues[self._at % len(queues)]

    def advance(self) -> None:
        """Go on to the next queue."""
        self._at += 1

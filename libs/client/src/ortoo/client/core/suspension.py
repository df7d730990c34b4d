"""Suspended queues of a consumer, without I/O."""

import asyncio
from collections.abc import Collection

from ortoo.client.core.queues import Queue


class Hold:
    """A hold on a queue in which a message in order waits for its next attempt."""

    __slots__ = ("is_over", "queue")

    def __init__(self, queue: Queue) -> None:
        """Hold `queue`."""
        self.queue = queue
        self.is_over = asyncio.Event()
        """Set when the consumer has lost the queue, so that no retry is due."""


class Suspension:
    """The suspended queues, or all."""

    __slots__ = ("_changed", "_held", "_named", "everything", "queues")

    def __init__(self) -> None:
        """Begin with nothing suspended."""
        self.everything = False
        self.queues: frozenset[Queue] = frozenset()
        self._named: frozenset[Queue] = frozenset()
        self._held: dict[Hold, None] = {}
        self._changed = asyncio.Event()

    def __bool__(self) -> bool:
        return self.everything or bool(self.queues)

    def __contains__(self, queue: Queue) -> bool:
        return self.everything or queue in self.queues

    def suspend(self, queues: Collection[Queue]) -> None:
        """Suspend these queues, or all if none is given."""
        self.everything = self.everything or not queues
        self._named |= frozenset(queues)
        self._add_up()

    def resume(self, queues: Collection[Queue]) -> None:
        """Resume these queues, or all if none is given."""
        if queues:
            self._named -= frozenset(queues)
        else:
            self.everything, self._named = False, frozenset()
        self._add_up()

    async def until_resumed(self, queue: Queue) -> None:
        """Wait while the queue is suspended."""
        while queue in self:
            self._changed.clear()
            await self._changed.wait()

    def hold(self, queue: Queue) -> Hold:
        """Suspend a queue until every hold of it is released."""
        hold = Hold(queue)
        self._held[hold] = None
        self._add_up()
        return hold

    def release(self, hold: Hold) -> None:
        """Release one hold of its queue."""
        self._held.pop(hold, None)
        self._add_up()

    def end_holds(self, kept: Collection[Queue]) -> bool:
        """End the holds of queues outside `kept`; returns whether there were any."""
        ended = [hold for hold in self._held if hold.queue not in kept]
        for hold in ended:
            hold.is_over.set()
            self.release(hold)
        return bool(ended)

    def _add_up(self) -> None:
        self.queues = self._named.union(hold.queue for hold in self._held)
        self._changed.set()

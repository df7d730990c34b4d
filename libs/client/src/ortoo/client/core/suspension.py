"""What a consumer takes nothing from for now: pure bookkeeping."""

import asyncio
from collections.abc import Collection

from ortoo.client.core.place import Queue


class Hold:
    """A reason to take nothing more of a queue: a message in order waits there for its next try."""

    __slots__ = ("is_over", "queue")

    def __init__(self, queue: Queue) -> None:
        """Of `queue`."""
        self.queue = queue
        self.is_over = asyncio.Event()
        """Set when the queue went, and the message with it: there is nothing to wait for."""


class Suspension:
    """Some queues, or everything."""

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

    async def until_resumed(self, queue: Queue) -> None:
        """Wait while this one is suspended."""
        while queue in self:
            self._changed.clear()
            await self._changed.wait()

    def hold(self, queue: Queue) -> Hold:
        """Take nothing more from this one until this and every other hold of it is released."""
        hold = Hold(queue)
        self._held[hold] = None
        self._add_up()
        return hold

    def release(self, hold: Hold) -> None:
        """One reason less to hold its queue."""
        self._held.pop(hold, None)
        self._add_up()

    def end_holds(self, kept: Collection[Queue]) -> bool:
        """End those of queues that are not kept; whether there were any."""
        ended = [hold for hold in self._held if hold.queue not in kept]
        for hold in ended:
            hold.is_over.set()
            self.release(hold)
        return bool(ended)

    def _add_up(self) -> None:
        self.queues = self._named.union(hold.queue for hold in self._held)
        self._changed.set()

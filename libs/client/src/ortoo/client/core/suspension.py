"""Suspended queues of a consumer, without I/O."""

import asyncio
from collections.abc import Collection

from ortoo.client.core.queues import Queue


class QueueHold:
    """A hold on a queue in which an ordered message waits for its next attempt."""

    __slots__ = ("queue", "revoked")

    def __init__(self, queue: Queue) -> None:
        """Hold `queue`."""
        self.queue = queue
        self.revoked = asyncio.Event()
        """Set when the consumer has lost the queue, so that no retry is due."""


class Suspension:
    """The suspended queues of a consumer; `is_all` = all queues are suspended."""

    __slots__ = ("_changed", "_holds", "_suspended", "is_all", "queues")

    def __init__(self) -> None:
        """Begin with nothing suspended."""
        self.is_all = False
        self.queues: frozenset[Queue] = frozenset()
        self._suspended: frozenset[Queue] = frozenset()
        self._holds: dict[QueueHold, None] = {}
        self._changed = asyncio.Event()

    def __bool__(self) -> bool:
        return self.is_all or bool(self.queues)

    def __contains__(self, queue: Queue) -> bool:
        return self.is_all or queue in self.queues

    def suspend(self, queues: Collection[Queue]) -> None:
        """Suspend these queues, or all if none is given."""
        self.is_all = self.is_all or not queues
        self._suspended |= frozenset(queues)
        self._update()

    def resume(self, queues: Collection[Queue]) -> None:
        """Resume these queues, or all if none is given."""
        if queues:
            self._suspended -= frozenset(queues)
        else:
            self.is_all, self._suspended = False, frozenset()
        self._update()

    async def wait_resumed(self, queue: Queue) -> None:
        """Wait while the queue is suspended."""
        while queue in self:
            self._changed.clear()
            await self._changed.wait()

    def hold(self, queue: Queue) -> QueueHold:
        """Suspend a queue until every hold of it is released."""
        hold = QueueHold(queue)
        self._holds[hold] = None
        self._update()
        return hold

    def release(self, hold: QueueHold) -> None:
        """Release one hold; the queue stays suspended while it has other holds."""
        self._holds.pop(hold, None)
        self._update()

    def drop_holds(self, owned: Collection[Queue]) -> bool:
        """End the holds of queues outside `owned`; returns whether any hold was ended."""
        dropped = [hold for hold in self._holds if hold.queue not in owned]
        for hold in dropped:
            hold.revoked.set()
            self.release(hold)
        return bool(dropped)

    def _update(self) -> None:
        self.queues = self._suspended.union(hold.queue for hold in self._holds)
        self._changed.set()

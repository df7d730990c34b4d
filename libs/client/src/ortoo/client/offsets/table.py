"""Offsets in memory on their way to a store: pure."""

from collections.abc import Collection, Mapping

from ortoo.client.core.place import Queue


class OffsetTable:
    """The next offset to consume, queue by queue, and which of them the store does not know yet."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._offsets: dict[Queue, int] = {}
        self._stored: dict[Queue, int] = {}

    def __getitem__(self, queue: Queue) -> int | None:
        """The offset of a queue; None if it is not known."""
        return self._offsets.get(queue)

    def update(self, queue: Queue, offset: int, *, increase_only: bool = False) -> None:
        """Note an offset. With `increase_only` a smaller one than known changes nothing."""
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def loaded(self, queue: Queue, offset: int) -> None:
        """The store has this offset."""
        self._offsets[queue] = self._stored[queue] = offset

    def unstored(self, queues: Collection[Queue]) -> dict[Queue, int]:
        """Of these queues the offsets that the store does not have."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue, -1)) >= 0 and self._stored.get(queue) != offset
        }

    def stored(self, offsets: Mapping[Queue, int]) -> None:
        """The store has these now."""
        self._stored.update(offsets)

    def forget(self, queue: Queue) -> None:
        """The queue is not owned any more."""
        self._offsets.pop(queue, None)
        self._stored.pop(queue, None)

    def keep_only(self, queues: Collection[Queue]) -> None:
        """Forget all but these."""
        for queue in self._offsets.keys() - set(queues):
            self.forget(queue)

    def known(self) -> dict[Queue, int]:
        """All offsets."""
        return dict(self._offsets)

"""Open transactions, and the outcomes of the last ended ones. Pure: no clock, no disk, no randomness."""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.enode.changes.halves import HalfEnded, HalfOpen
from ortoo.enode.state.table import StateTable, iterate_live

ENDED_MAX = 100_000
"""The number of ended transactions that are remembered; the oldest are dropped first."""


class HalfMessageTable(StateTable[set[int]]):
    """All transactions of an enode by number, and the open ones of each topic. A verdict is final."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.open: dict[int, HalfOpen] = {}
        self.ended: dict[int, HalfEnded] = {}
        self._by_key: dict[int, int] = {}

    def of_key(self, key: int) -> HalfOpen | None:
        """The open transaction with a key."""
        return self.open.get(self._by_key.get(key, -1)) if key else None

    def drop_topic(self, topic_id: int) -> None:
        """Drop the open transactions of a deleted topic."""
        for number in tuple(self._topics.get(topic_id, ())):
            self._close(number)

    @property
    def rows(self) -> int:
        """The number of transactions, open and ended."""
        return len(self.open) + len(self.ended)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes, the ended ones first."""
        for ended in list(self.ended.values()):
            yield ended.encoded()
        for _, half in iterate_live(self.open):
            yield half.encoded()

    def _open(self, change: HalfOpen) -> None:
        if change.number in self.ended:
            return
        self._close(change.number)
        self.open[change.number] = change
        self._topics.setdefault(change.topic_id, set()).add(change.number)
        if change.key:
            self._by_key[change.key] = change.number

    def _end(self, change: HalfEnded) -> None:
        self._close(change.number)
        self.ended.setdefault(change.number, change)
        while len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]

    def _close(self, number: int) -> None:
        half = self.open.pop(number, None)
        if half is not None:
            self._by_key.pop(half.key, None)
            numbers = self._topics[half.topic_id]
            numbers.discard(number)
            if not numbers:
                del self._topics[half.topic_id]

    FOLDS: ClassVar = {HalfOpen: _open, HalfEnded: _end}

    def select(
        self, *, topic_id: int = 0, producer_group: str = "", parked_only: bool = False, limit: int = 100
    ) -> list[HalfOpen]:
        """Open transactions, oldest first; topic 0 matches any topic, and an empty group any group."""
        found = (
            one
            for one in self.open.values()
            if topic_id in (0, one.topic_id)
            and producer_group in ("", one.producer_group)
            and (one.parked or not parked_only)
        )
        return sorted(found, key=lambda one: (one.stored_at_ms, one.number))[:limit]

    def in_places(self, begin: int, end: int) -> list[HalfOpen]:
        """Open transactions whose messages begin at these places."""
        return [one for one in self.open.values() if begin <= one.place < end]

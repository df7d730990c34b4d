"""Transactions: those that are open, and how the last ones ended. Pure: no clock, no disk, no chance."""

from collections.abc import Iterator

from ortoo.enode.changes.all import Change, TopicGone
from ortoo.enode.changes.halves import HalfEnded, HalfOpen

ENDED_MAX = 100_000
"""How many ended transactions are remembered; the longest ended are forgotten first."""


class Halves:
    """All transactions of an enode, by number."""

    def __init__(self) -> None:
        """No transactions."""
        self.open: dict[int, HalfOpen] = {}
        self.ended: dict[int, HalfEnded] = {}
        self._by_key: dict[int, int] = {}

    def apply(self, change: Change) -> None:
        """Fold one change in; others than those of transactions do nothing. An end is final."""
        if isinstance(change, HalfOpen):
            if change.number not in self.ended:
                self.open[change.number] = change
                if change.key:
                    self._by_key[change.key] = change.number
        elif isinstance(change, HalfEnded):
            self._close(change.number)
            self.ended.setdefault(change.number, change)
            while len(self.ended) > ENDED_MAX:
                del self.ended[next(iter(self.ended))]
        elif isinstance(change, TopicGone):
            for number in [one.number for one in self.open.values() if one.topic_id == change.topic_id]:
                self._close(number)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while transactions come and go, for they are then folded again."""
        for ended in list(self.ended.values()):
            yield ended.encoded()
        for number in list(self.open):
            half = self.open.get(number)
            if half is not None:
                yield half.encoded()

    def of_key(self, key: int) -> HalfOpen | None:
        """The open transaction that was begun with a key."""
        return self.open.get(self._by_key.get(key, -1)) if key else None

    def _close(self, number: int) -> None:
        half = self.open.pop(number, None)
        if half is not None:
            self._by_key.pop(half.key, None)

    def listed(
        self, *, topic_id: int = 0, producer_group: str = "", parked_only: bool = False, limit: int = 100
    ) -> list[HalfOpen]:
        """Open transactions, the oldest first; topic 0 and the empty group mean any."""
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

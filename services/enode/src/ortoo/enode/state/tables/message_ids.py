"""Ids that applications chose for their messages, remembered for a window: each is stored once. Pure.

The window is bounded by time, which each record says, and by count; the longest remembered go first.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from ortoo.enode.changes.all import ID_BYTES, Forget, IdsRemembered
from ortoo.enode.state.table import Table, live, sum_of

IDS_MAX = 100_000
"""How many ids of one topic are remembered."""
IDS_PER_CHANGE = 256


class Remembered(NamedTuple):
    """Where the message with an id was stored."""

    queue_id: int
    offset: int
    """Of a delayed message its number among those that wait."""
    delayed: bool
    stored_at_ms: int
    until_ms: int


class MessageIds(Table[OrderedDict[bytes, Remembered]]):
    """Of each topic id to place, the longest remembered first."""

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def of(self, topic_id: int, short_id: bytes, now_ms: int) -> Remembered | None:
        """Where the message with this id is, if it was stored within the window."""
        ids = self._topics.get(topic_id)
        found = ids.get(short_id) if ids is not None else None
        return found if found is not None and found.until_ms > now_ms else None

    def are_over(self, now_ms: int) -> bool:
        """Whether ids are out of their window; who asks is not told of them any more."""
        return any(next(iter(ids.values())).until_ms <= now_ms for ids in self._topics.values() if ids)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes, each topic's ids in order."""
        for topic_id, ids in live(self._topics):
            rows, start = list(ids.items()), 0
            while start < len(rows):
                first = rows[start][1]
                end = start + 1
                while end < min(len(rows), start + IDS_PER_CHANGE) and _follows(first, end - start, rows[end][1]):
                    end += 1
                yield IdsRemembered(topic_id, *first, tuple(short_id for short_id, _ in rows[start:end])).encoded()
                start = end

    def digest(self) -> int:
        """As of every table, id by id: where the rows of a checkpoint part depends on what was dropped."""
        return sum_of(
            b"%b %d %d %d %d" % (short_id, topic_id, place.queue_id, place.offset, place.until_ms)
            for topic_id, ids in self._topics.items()
            for short_id, place in ids.items()
        )

    def _remember(self, change: IdsRemembered) -> None:
        ids = self._topics.setdefault(change.topic_id, OrderedDict())
        rest = (change.delayed, change.stored_at_ms, change.until_ms)
        for offset, short_id in enumerate(change.ids, change.first_offset):
            ids[short_id] = Remembered(change.queue_id, offset, *rest)
            ids.move_to_end(short_id)
        _drop(ids, change.stored_at_ms)

    def _forget(self, change: Forget) -> None:
        for topic_id, ids in list(self._topics.items()):
            _drop(ids, change.over_before_ms)
            if not ids:
                del self._topics[topic_id]

    FOLDS: ClassVar = {IdsRemembered: _remember, Forget: _forget}


def _drop(ids: OrderedDict[bytes, Remembered], now_ms: int) -> None:
    while ids and (len(ids) > IDS_MAX or next(iter(ids.values())).until_ms <= now_ms):
        ids.popitem(last=False)


def short_id(chosen: str) -> bytes:
    """What is remembered of an id: long enough that no two are ever taken for one another by chance."""
    return hashlib.blake2b(chosen.encode(), digest_size=ID_BYTES).digest()


def _follows(first: Remembered, rows: int, other: Remembered) -> bool:
    return other == first._replace(offset=first.offset + rows)

"""Application ids of messages, remembered for a window: a message with a remembered id is not stored again. Pure.

The window is bounded by the time in each record and by the number of ids. The oldest ids are dropped first.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from ortoo.enode.changes.kinds import ID_BYTES, ExpiredDropped, IdsRemembered
from ortoo.enode.state.table import StateTable, digest_of, iterate_live

IDS_MAX = 100_000
"""The number of remembered ids of one topic."""
IDS_PER_CHANGE = 256


class RememberedId(NamedTuple):
    """The place of the message with a remembered id."""

    queue_id: int
    offset: int
    """The offset in the queue; of a delayed message its timer id."""
    delayed: bool
    stored_at_ms: int
    until_ms: int


class MessageIdTable(StateTable[OrderedDict[bytes, RememberedId]]):
    """The table of remembered message ids: topic id to the hash of a message id to place, oldest first."""

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def of(self, topic_id: int, short_id: bytes, now_ms: int) -> RememberedId | None:
        """The place of the message with this id, if it was stored within the window."""
        ids = self._topics.get(topic_id)
        found = ids.get(short_id) if ids is not None else None
        return found if found is not None and found.until_ms > now_ms else None

    def has_expired(self, now_ms: int) -> bool:
        """Whether any id is past its window; `of` ignores such ids."""
        return any(next(iter(ids.values())).until_ms <= now_ms for ids in self._topics.values() if ids)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes, each topic's ids in order."""
        for topic_id, ids in iterate_live(self._topics):
            rows, start = list(ids.items()), 0
            while start < len(rows):
                first = rows[start][1]
                end = start + 1
                while end < min(len(rows), start + IDS_PER_CHANGE) and _is_next(first, end - start, rows[end][1]):
                    end += 1
                yield IdsRemembered(topic_id, *first, tuple(short_id for short_id, _ in rows[start:end])).encoded()
                start = end

    def digest(self) -> int:
        """A digest over single ids, because the split of a checkpoint into rows depends on earlier drops."""
        return digest_of(
            b"%b %d %d %d %d" % (short_id, topic_id, place.queue_id, place.offset, place.until_ms)
            for topic_id, ids in self._topics.items()
            for short_id, place in ids.items()
        )

    def _remember(self, change: IdsRemembered) -> None:
        ids = self._topics.setdefault(change.topic_id, OrderedDict())
        rest = (change.delayed, change.stored_at_ms, change.until_ms)
        for offset, short_id in enumerate(change.ids, change.first_offset):
            ids[short_id] = RememberedId(change.queue_id, offset, *rest)
            ids.move_to_end(short_id)
        _drop_expired(ids, change.stored_at_ms)

    def _forget(self, change: ExpiredDropped) -> None:
        for topic_id, ids in list(self._topics.items()):
            _drop_expired(ids, change.over_before_ms)
            if not ids:
                del self._topics[topic_id]

    FOLDS: ClassVar = {IdsRemembered: _remember, ExpiredDropped: _forget}


def _drop_expired(ids: OrderedDict[bytes, RememberedId], now_ms: int) -> None:
    while ids and (len(ids) > IDS_MAX or next(iter(ids.values())).until_ms <= now_ms):
        ids.popitem(last=False)


def short_id(message_id: str) -> bytes:
    """The hash of an id that is remembered; long enough to make accidental collisions practically impossible."""
    return hashlib.blake2b(message_id.encode(), digest_size=ID_BYTES).digest()


def _is_next(first: RememberedId, rows: int, other: RememberedId) -> bool:
    return other == first._replace(offset=first.offset + rows)

"""Base classes of the state's tables: folds of some kinds of changes, stored by topic."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, ClassVar, Generic, TypeVar

from ortoo.enode.changes.kinds import StateChange

ROWS_PER_CHANGE = 1_024
"""The number of checkpoint rows in one change."""

K = TypeVar("K")
V = TypeVar("V")


class StateTable(ABC, Generic[V]):
    """One table of the state. Folding the last part of the log a second time does not change its contents."""

    FOLDS: ClassVar[Mapping[type[StateChange], Callable[[Any, Any], None]]]
    """Class of a change to the method that folds it into the table."""

    def __init__(self) -> None:
        """Begin empty."""
        self._topics: dict[int, V] = {}
        """Topic id to the rows of that topic, so that dropping a topic is cheap."""

    def drop_topic(self, topic_id: int) -> None:
        """Drop the rows of a deleted topic."""
        self._topics.pop(topic_id, None)

    def drop_group(self, topic_id: int, group: str) -> None:  # most tables have no groups
        """Drop the rows of a group in a topic."""

    @abstractmethod
    def checkpoint(self) -> Iterator[bytes]:
        """Yield the whole table as encoded changes. Changes may be folded meanwhile; a reader folds them again."""

    @property
    def rows(self) -> int:
        """The approximate number of rows, which determines the cost of a checkpoint or digest."""
        return sum(len(one) if isinstance(one, Sized) else 1 for one in self._topics.values())

    def digest(self) -> int:
        """A 64-bit digest of the rows that does not depend on their order."""
        return digest_of(self.checkpoint())


class KeyedTable(StateTable[dict[K, V]], Generic[K, V]):
    """A table of values by (topic id, key)."""

    def entries(self) -> Iterator[tuple[int, K, V]]:
        """All (topic id, key, value); the table must not change meanwhile."""
        return ((topic_id, *one) for topic_id, known in self._topics.items() for one in known.items())

    def iterate_live(self) -> Iterator[tuple[int, K, V]]:
        """All (topic id, key, value) for a checkpoint; the table may change meanwhile."""
        return ((topic_id, *one) for topic_id, known in iterate_live(self._topics) for one in iterate_live(known))


class GroupTable(KeyedTable[str, V]):
    """A table of values by (topic id, group)."""

    @property
    def rows(self) -> int:
        """The approximate number of rows. Each entry of a value counts, such as one per queue."""
        return sum(len(one) if isinstance(one, Sized) else 1 for _, _, one in self.entries())

    def drop_group(self, topic_id: int, group: str) -> None:
        """Drop the rows of a group in a topic."""
        self._topics.get(topic_id, {}).pop(group, None)


class PlaceTable(KeyedTable[tuple[str, int], V]):
    """A table of values by (topic id, (group, queue id))."""

    def drop_group(self, topic_id: int, group: str) -> None:
        """Drop the rows of a group in a topic."""
        places = self._topics.get(topic_id, {})
        for place in [place for place in places if place[0] == group]:
            del places[place]


def digest_of(rows: Iterable[bytes]) -> int:
    """A digest of rows that does not depend on their order."""
    hashes = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return sum(int.from_bytes(one, "little") for one in hashes) % (1 << 64)


def split_rows(rows: Sequence[K]) -> Iterator[tuple[K, ...]]:
    """Split rows into the changes of a checkpoint."""
    return (tuple(rows[start : start + ROWS_PER_CHANGE]) for start in range(0, len(rows), ROWS_PER_CHANGE))


def iterate_live(entries: Mapping[K, V]) -> Iterator[tuple[K, V]]:
    """The entries of a mapping that may change during the iteration; deleted entries are skipped."""
    for key in list(entries):
        value = entries.get(key)
        if value is not None:
            yield key, value

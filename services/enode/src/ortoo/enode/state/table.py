"""What every table of the state is: a fold of some kinds of changes, kept topic by topic."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, ClassVar, Generic, TypeVar

from ortoo.enode.changes.all import Change

ROWS_PER_CHANGE = 1_024
"""How many rows of a checkpoint share one change."""

K = TypeVar("K")
V = TypeVar("V")


class Table(ABC, Generic[V]):
    """One table. Folding a stretch of the log again that it holds already, to its end, leaves what was there."""

    FOLDS: ClassVar[Mapping[type[Change], Callable[[Any, Any], None]]]
    """Of each kind of change that concerns the table, the method that folds one in."""

    def __init__(self) -> None:
        """Nothing."""
        self._topics: dict[int, V] = {}
        """Topic id to what is known of that topic: dropping a topic costs what it holds."""

    def drop_topic(self, topic_id: int) -> None:
        """Forget everything of a deleted topic."""
        self._topics.pop(topic_id, None)

    def drop_group(self, topic_id: int, group: str) -> None:  # most tables know nothing of groups
        """Forget everything of a group in a topic."""

    @abstractmethod
    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while changes go on, for they are then folded again."""

    @property
    def rows(self) -> int:
        """About how many rows there are: what a checkpoint of the table costs, and a digest."""
        return sum(len(one) if isinstance(one, Sized) else 1 for one in self._topics.values())

    def digest(self) -> int:
        """64 bits that tell equal tables from others, in whatever order the rows came."""
        return sum_of(self.checkpoint())


class KeyedTable(Table[dict[K, V]], Generic[K, V]):
    """A table of what is known of several things in a topic, each by its key."""

    def entries(self) -> Iterator[tuple[int, K, V]]:
        """(topic id, key, what is known) of everything, while nothing changes."""
        return ((topic_id, *one) for topic_id, known in self._topics.items() for one in known.items())

    def drawn(self) -> Iterator[tuple[int, K, V]]:
        """The same while changes go on, for a checkpoint."""
        return ((topic_id, *one) for topic_id, known in live(self._topics) for one in live(known))


class GroupTable(KeyedTable[str, V]):
    """A table of what is known of each group in a topic."""

    @property
    def rows(self) -> int:
        """As of every table, queue by queue."""
        return sum(len(one) if isinstance(one, Sized) else 1 for _, _, one in self.entries())

    def drop_group(self, topic_id: int, group: str) -> None:
        """Forget everything of a group in a topic."""
        self._topics.get(topic_id, {}).pop(group, None)


class PlaceTable(KeyedTable[tuple[str, int], V]):
    """A table of what is known of each group in a queue, by (group, queue id)."""

    def drop_group(self, topic_id: int, group: str) -> None:
        """Forget everything of a group in a topic."""
        places = self._topics.get(topic_id, {})
        for place in [place for place in places if place[0] == group]:
            del places[place]


def sum_of(rows: Iterable[bytes]) -> int:
    """A digest of rows that does not depend on their order."""
    hashes = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return sum(int.from_bytes(one, "little") for one in hashes) % (1 << 64)


def parts(rows: Sequence[K]) -> Iterator[tuple[K, ...]]:
    """Rows as they share changes of a checkpoint."""
    return (tuple(rows[start : start + ROWS_PER_CHANGE]) for start in range(0, len(rows), ROWS_PER_CHANGE))


def live(entries: Mapping[K, V]) -> Iterator[tuple[K, V]]:
    """The entries of a mapping that changes while they are drawn: without those that are gone when their turn comes."""
    for key in list(entries):
        value = entries.get(key)
        if value is not None:
            yield key, value

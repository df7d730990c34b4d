"""The durable locks of queues: the last holder of each, and its generation."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ortoo.enode.changes.kinds import LocksChanged
from ortoo.enode.state.table import GroupTable, split_rows


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock of one queue, with its holder."""

    generation: int
    owner: str
    session_id: str
    incarnation: str

    @property
    def is_free(self) -> bool:
        """Whether the lock has no holder."""
        return not self.owner


class StoredLockTable(GroupTable[dict[int, Lock]]):
    """The table of locks: topic id to group to queue id to the last lock.

    A free lock stays in the table to keep its generation.
    """

    def all(self) -> Iterator[tuple[tuple[int, str, int], Lock]]:
        """All locks, each as ((topic id, group, queue id), lock)."""
        for topic_id, group, locks in self.entries():
            for queue_id, lock in locks.items():
                yield (topic_id, group, queue_id), lock

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, group, locks in self.iterate_live():
            for put in lock_changes(((topic_id, group, queue_id), lock) for queue_id, lock in sorted(locks.items())):
                for part in split_rows(put.rows):
                    yield replace(put, rows=part).encoded()

    def _put(self, change: LocksChanged) -> None:
        locks = self._topics.setdefault(change.topic_id, {}).setdefault(change.group, {})
        for queue_id, generation in change.rows:
            locks[queue_id] = Lock(generation, change.owner, change.session_id, change.incarnation)

    FOLDS: ClassVar = {LocksChanged: _put}


def lock_changes(locks: Iterable[tuple[tuple[int, str, int], Lock]]) -> list[LocksChanged]:
    """The changes that store locks of (topic id, group, queue id): one change for each topic, group and holder."""
    rows: dict[tuple[int, str, str, str, str], list[tuple[int, int]]] = {}
    for (topic_id, group, queue_id), lock in locks:
        holder = (topic_id, group, lock.owner, lock.session_id, lock.incarnation)
        rows.setdefault(holder, []).append((queue_id, lock.generation))
    return [LocksChanged(*holder, tuple(sorted(pairs))) for holder, pairs in rows.items()]

"""The locks of queues as the log has them: who held each last, and under which generation."""

from collections.abc import Iterator
from dataclasses import dataclass

from ortoo.enode.changes.all import Change, LocksPut, TopicGone

ROWS_PER_CHANGE = 1024


@dataclass(frozen=True, slots=True)
class Lock:
    """Who holds the lock of one queue."""

    generation: int
    owner: str
    session_id: str
    incarnation: str

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it."""
        return not self.owner


class Locks:
    """(topic id, group) to queue id to lock. A lock that is free stays, for its generation."""

    def __init__(self) -> None:
        """No locks."""
        self._groups: dict[tuple[int, str], dict[int, Lock]] = {}

    def all(self) -> Iterator[tuple[tuple[int, str, int], Lock]]:
        """((topic id, group, queue id), lock) of each."""
        for (topic_id, group), rows in self._groups.items():
            for queue_id, lock in rows.items():
                yield (topic_id, group, queue_id), lock

    def apply(self, change: Change) -> None:
        """Fold one change in: the last one of a queue wins, so folding a stretch of the log twice does no harm."""
        if isinstance(change, LocksPut):
            rows = self._groups.setdefault((change.topic_id, change.group), {})
            for queue_id, generation in change.rows:
                rows[queue_id] = Lock(generation, change.owner, change.session_id, change.incarnation)
        elif isinstance(change, TopicGone):
            for key in [key for key in self._groups if key[0] == change.topic_id]:
                del self._groups[key]

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while locks change, for they are then folded again."""
        for topic_id, group in list(self._groups):
            holders: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
            for queue_id, lock in sorted(self._groups.get((topic_id, group), {}).items()):
                holder = (lock.owner, lock.session_id, lock.incarnation)
                holders.setdefault(holder, []).append((queue_id, lock.generation))
            for holder, rows in holders.items():
                for start in range(0, len(rows), ROWS_PER_CHANGE):
                    part = tuple(rows[start : start + ROWS_PER_CHANGE])
                    yield LocksPut(topic_id, group, *holder, part).encoded()

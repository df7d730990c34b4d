"""The locks of queues: pure decisions over the current locks and the time.

A lock belongs to a client id and one session of it. A bound lock lives while its snode's incarnation is attached.
An unbound lock lives `LIFETIME_S` from its last grant or renewal. Only owners and generations are in the log. Lifetimes
are only in memory, so after a restart every lock has its full lifetime again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ortoo.common.errors import Fenced
from ortoo.enode.state.tables.locks import Lock

LIFETIME_S = 60.0
"""Lifetime of a lock without renewal; owners rely on it for half of this time."""
HEARTBEAT_TIMEOUT_S = 20.0
"""Lifetime of bound locks without a message of their snode, which sends one every 5 s."""
DETACHED_GRACE_S = 2.0
"""Lifetime of bound locks after the connection of their snode ended, so that it can reconnect."""
RESTART_GRACE_S = 5.0
"""Time for snodes to attach again after the start of this enode."""

LockKey = tuple[int, str, int]
"""(topic id, group, queue id)."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A request for one lock."""

    key: LockKey
    owner: str
    session_id: str
    incarnation: str = ""
    resume: bool = False
    """Whether the session had the lock before; then it must not take it from a newer session of the same owner."""


@dataclass(frozen=True, slots=True)
class LockGranted:
    """The requester owns the lock with this generation. `is_new`: the lock must be stored before the answer."""

    generation: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class LockDenied:
    """Another client owns the lock."""

    owner: str
    remaining_s: float


class LockTable:
    """The current locks, including those on their way to the disk, because decisions depend on them."""

    def __init__(self, locks: Iterable[tuple[LockKey, Lock]], now_s: float) -> None:
        """Start with the locks in the log; the enode starts at `now_s`."""
        self._locks = dict(locks)
        self._renewed_s = dict.fromkeys(self._locks, now_s)
        self._heard_s: dict[str, float] = {}
        self._detached_end_s: dict[str, float] = {}
        self._started_s = now_s
        self._waiters: dict[LockKey, dict[str, None]] = {}

    def take(self, request: LockRequest, now_s: float, *, generation_above: int) -> LockGranted | LockDenied:
        """Grant the lock unless another client holds it; the requester's own lock is renewed.

        A new generation is greater than the lock's previous ones and than `generation_above`.
        """
        lock = self._locks.get(request.key)
        if lock is not None and not lock.is_free and not _may_take_over(request, lock):
            remaining_s = self.remaining_s(request.key, lock, now_s)
            if remaining_s > 0:
                if request.incarnation:
                    self._waiters.setdefault(request.key, {})[request.incarnation] = None
                return LockDenied(lock.owner, remaining_s)
        self._renewed_s[request.key] = now_s
        holder = (request.owner, request.session_id, request.incarnation)
        if lock is not None and (lock.owner, lock.session_id, lock.incarnation) == holder:
            return LockGranted(lock.generation, is_new=False)
        generation = max(lock.generation if lock is not None else 0, generation_above) + 1
        self._locks[request.key] = Lock(generation, *holder)
        return LockGranted(generation, is_new=True)

    def release(self, key: LockKey, session_id: str) -> Lock | None:
        """Free a lock of this session; returns the freed lock, or None if the session does not hold the lock."""
        lock = self._locks.get(key)
        if lock is None or lock.is_free or lock.session_id != session_id:
            return None
        self._locks[key] = free = Lock(lock.generation, "", "", "")
        return free

    def fence(self, key: LockKey, generation_above: int) -> Lock:
        """Raise the generation: the owner must take its lock again before its next request."""
        lock = self._locks.get(key) or Lock(0, "", "", "")
        generation = max(lock.generation, generation_above) + 1
        self._locks[key] = Lock(generation, lock.owner, lock.session_id, lock.incarnation)
        self._renewed_s.setdefault(key, self._started_s)
        return self._locks[key]

    def get(self, key: LockKey) -> Lock | None:
        """The current lock."""
        return self._locks.get(key)

    def undo(self, key: LockKey, before: Lock | None, after: Lock | None) -> None:
        """Undo a decision that could not be stored, unless a later decision replaced it."""
        if self._locks.get(key) is after:
            if before is None:
                self._locks.pop(key, None)
            else:
                self._locks[key] = before

    def check_generation(self, key: LockKey, generation: int, *, must_match: bool = False) -> None:
        """Refuse a generation older than the lock's generation; 0 is not compared.

        With `must_match`, a greater generation is refused, too, because this log did not issue it. Requests with an
        offset need this, because the offset may be one of a lost log or a deleted topic.

        Errors: Fenced.
        """
        if not generation:
            return
        current = self.generation(key)
        if generation < current or (must_match and generation != current):
            raise Fenced(
                f"the lock of queue {key[2]} has generation {current} in group {key[1]}, this request is of "
                f"{generation}: take the lock again",
                field="generation",
            )

    def generation(self, key: LockKey) -> int:
        """The lock's generation; 0 if there never was a lock."""
        lock = self._locks.get(key)
        return lock.generation if lock is not None else 0

    def of_group(self, topic_id: int, group: str) -> Iterator[tuple[int, Lock]]:
        """(queue id, lock) of each queue of a topic that has a lock in the group, by queue id."""
        for key in sorted(key for key in self._locks if key[0] == topic_id and key[1] == group):
            yield key[2], self._locks[key]

    def drop(self, is_deleted: Callable[[tuple[int, str]], bool]) -> None:
        """Delete the locks of all (topic id, group) for which `is_deleted` is true."""
        for key in [key for key in self._locks if is_deleted(key[:2])]:
            del self._locks[key]
            self._renewed_s.pop(key, None)

    def groups_with_locks(self, now_s: float) -> set[tuple[int, str]]:
        """(topic id, group) of all held locks."""
        return {
            key[:2] for key, lock in self._locks.items() if not lock.is_free and self.remaining_s(key, lock, now_s) > 0
        }

    def attach(self, incarnation: str, now_s: float) -> None:
        """Record a sign of life of a snode."""
        self._heard_s[incarnation] = now_s
        self._detached_end_s.pop(incarnation, None)

    def detach(self, incarnation: str, now_s: float) -> None:
        """Record that the connection of a snode ended."""
        if self._heard_s.pop(incarnation, None) is not None:
            self._detached_end_s[incarnation] = now_s + DETACHED_GRACE_S

    def remaining_s(self, key: LockKey, lock: Lock, now_s: float) -> float:
        """Remaining lifetime of a lock without further events; 0 or less = expired."""
        renewed_s = self._renewed_s.get(key, now_s)
        if not lock.incarnation:
            return renewed_s + LIFETIME_S - now_s
        heard_s = self._heard_s.get(lock.incarnation)
        if heard_s is not None:
            return heard_s + HEARTBEAT_TIMEOUT_S - now_s
        ended_s = self._detached_end_s.get(lock.incarnation)
        if ended_s is not None:
            return ended_s - now_s
        # Not seen since this enode started: it attaches soon, or it ended. A snode may request locks before that.
        return max(self._started_s, renewed_s) + RESTART_GRACE_S - now_s

    @property
    def has_waiters(self) -> bool:
        """Whether a refused request still waits for its lock."""
        return bool(self._waiters)

    def next_end_s(self, now_s: float) -> float:
        """Seconds until the first awaited lock expires, if it is not renewed; at least 0."""
        ends = [self.remaining_s(key, lock, now_s) for key in self._waiters if (lock := self._locks.get(key))]
        return max(0.0, min(ends, default=0.0))

    def take_freed(self, now_s: float) -> dict[str, list[LockKey]]:
        """Requested locks that have become free, by the incarnation to notify. Each lock is returned once."""
        for incarnation in [one for one, ended_s in self._detached_end_s.items() if ended_s + LIFETIME_S < now_s]:
            del self._detached_end_s[incarnation]
        freed: dict[str, list[LockKey]] = {}
        for key in list(self._waiters):
            lock = self._locks.get(key)
            if lock is None or lock.is_free or self.remaining_s(key, lock, now_s) <= 0:
                for incarnation in self._waiters.pop(key):
                    freed.setdefault(incarnation, []).append(key)
        return freed


def _may_take_over(request: LockRequest, lock: Lock) -> bool:
    return lock.owner == request.owner and (lock.session_id == request.session_id or not request.resume)

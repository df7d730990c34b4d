"""Who may take the lock of a queue: pure decisions over the locks now and the time.

A lock belongs to a client id and one session of it. It is bound to a snode's incarnation and lives as long as that is
attached, or it is unbound and lives `LIFETIME_S` from when it was taken or renewed. Only owners and generations are in
the log; when a lock ends is known in memory alone, and after a restart every lock begins its time anew.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ortoo.common.errors import Fenced
from ortoo.enode.state.tables.locks import Lock

LIFETIME_S = 60.0
"""How long a lock lives without renewal; owners trust it half as long."""
BOUND_S = 20.0
"""How long bound locks live without a word of their snode, which speaks every 5 s."""
DETACHED_S = 2.0
"""How long bound locks outlive the connection of their snode: time to come back after a short break."""
RESTART_S = 5.0
"""How long snodes have to attach again after this enode has started."""

Key = tuple[int, str, int]
"""(topic id, group, queue id)."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """One lock that somebody wants."""

    key: Key
    owner: str
    session_id: str
    incarnation: str = ""
    resume: bool = False
    """Whether the session had it before, so that it must not take it from a newer session of the same owner."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The owner has it under this generation; `is_news` if that has to be stored first."""

    generation: int
    is_news: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Somebody else has it."""

    owner: str
    remaining_s: float


class LockTable:
    """The locks now, those on their way to the disk included: decisions have to see them."""

    def __init__(self, locks: Iterable[tuple[Key, Lock]], now_s: float) -> None:
        """Begin with what the log has, at a start of the enode."""
        self._locks = dict(locks)
        self._renewed_s = dict.fromkeys(self._locks, now_s)
        self._heard_s: dict[str, float] = {}
        self._ends_s: dict[str, float] = {}
        self._started_s = now_s
        self._waiting: dict[Key, dict[str, None]] = {}

    def take(self, request: LockRequest, now_s: float, *, generation_above: int) -> Granted | Refused:
        """Give the lock to who asks, if nobody else lives on it; its own one is renewed.

        A new generation is greater than the lock's former ones and than `generation_above`.
        """
        lock = self._locks.get(request.key)
        if lock is not None and not lock.is_free and not _may_take_over(request, lock):
            remaining_s = self.remaining_s(request.key, lock, now_s)
            if remaining_s > 0:
                if request.incarnation:
                    self._waiting.setdefault(request.key, {})[request.incarnation] = None
                return Refused(lock.owner, remaining_s)
        self._renewed_s[request.key] = now_s
        wanted = (request.owner, request.session_id, request.incarnation)
        if lock is not None and (lock.owner, lock.session_id, lock.incarnation) == wanted:
            return Granted(lock.generation, is_news=False)
        generation = max(lock.generation if lock is not None else 0, generation_above) + 1
        self._locks[request.key] = Lock(generation, *wanted)
        return Granted(generation, is_news=True)

    def release(self, key: Key, session_id: str) -> Lock | None:
        """Free a lock that this session holds; the free one, or None if the session does not hold it."""
        lock = self._locks.get(key)
        if lock is None or lock.is_free or lock.session_id != session_id:
            return None
        self._locks[key] = free = Lock(lock.generation, "", "", "")
        return free

    def fence(self, key: Key, generation_above: int) -> Lock:
        """Raise the generation: the owner has to take its lock again before it goes on."""
        lock = self._locks.get(key) or Lock(0, "", "", "")
        generation = max(lock.generation, generation_above) + 1
        self._locks[key] = Lock(generation, lock.owner, lock.session_id, lock.incarnation)
        self._renewed_s.setdefault(key, self._started_s)
        return self._locks[key]

    def get(self, key: Key) -> Lock | None:
        """The lock now."""
        return self._locks.get(key)

    def put_back(self, key: Key, was: Lock | None, now: Lock | None) -> None:
        """Undo a decision that could not be stored, unless another one came after it."""
        if self._locks.get(key) is now:
            if was is None:
                self._locks.pop(key, None)
            else:
                self._locks[key] = was

    def check(self, key: Key, generation: int, *, given_here: bool = False) -> None:
        """Refuse who names an older generation than the lock's; 0 is not compared.

        With `given_here`, for who reads on from a place that only it knows, or stores it: this log has to have given
        the lock. In a log that was lost, or a topic that is no more, that place was another one.

        Errors: Fenced.
        """
        if not generation:
            return
        now = self.generation(key)
        if generation < now or (given_here and generation != now):
            raise Fenced(
                f"the lock of queue {key[2]} has generation {now} in group {key[1]}, this request is of "
                f"{generation}: take the lock again",
                field="generation",
            )

    def generation(self, key: Key) -> int:
        """The lock's generation; 0 if there never was one."""
        lock = self._locks.get(key)
        return lock.generation if lock is not None else 0

    def of_group(self, topic_id: int, group: str) -> Iterator[tuple[int, Lock]]:
        """(queue id, lock) of each queue of a topic that has one, by queue id."""
        for key in sorted(key for key in self._locks if key[0] == topic_id and key[1] == group):
            yield key[2], self._locks[key]

    def forget(self, is_gone: Callable[[tuple[int, str]], bool]) -> None:
        """Topics were deleted, or what was kept of groups in them: all that (topic id, group) says, in one look."""
        for key in [key for key in self._locks if is_gone(key[:2])]:
            del self._locks[key]
            self._renewed_s.pop(key, None)

    def held(self, now_s: float) -> set[tuple[int, str]]:
        """(topic id, group) of those that hold a lock."""
        return {
            key[:2] for key, lock in self._locks.items() if not lock.is_free and self.remaining_s(key, lock, now_s) > 0
        }

    def attached(self, incarnation: str, now_s: float) -> None:
        """A snode says that it is there."""
        self._heard_s[incarnation] = now_s
        self._ends_s.pop(incarnation, None)

    def detached(self, incarnation: str, now_s: float) -> None:
        """The connection of a snode is gone."""
        if self._heard_s.pop(incarnation, None) is not None:
            self._ends_s[incarnation] = now_s + DETACHED_S

    def remaining_s(self, key: Key, lock: Lock, now_s: float) -> float:
        """How long a lock lives if nothing happens; 0 or less = it has ended."""
        renewed_s = self._renewed_s.get(key, now_s)
        if not lock.incarnation:
            return renewed_s + LIFETIME_S - now_s
        heard_s = self._heard_s.get(lock.incarnation)
        if heard_s is not None:
            return heard_s + BOUND_S - now_s
        ended_s = self._ends_s.get(lock.incarnation)
        if ended_s is not None:
            return ended_s - now_s
        # Never seen since this enode started: it comes soon, or it is gone. A snode may ask before it attaches.
        return max(self._started_s, renewed_s) + RESTART_S - now_s

    @property
    def is_wanted(self) -> bool:
        """Whether anybody was refused a lock that has not become free since."""
        return bool(self._waiting)

    def first_end_s(self, now_s: float) -> float:
        """In how many seconds the first lock ends that somebody else wants, if nothing happens; at least 0."""
        ends = [self.remaining_s(key, lock, now_s) for key in self._waiting if (lock := self._locks.get(key))]
        return max(0.0, min(ends, default=0.0))

    def freed(self, now_s: float) -> dict[str, list[Key]]:
        """Locks that were refused and have become free, by the incarnation to tell; each is told once."""
        for incarnation in [one for one, ended_s in self._ends_s.items() if ended_s + LIFETIME_S < now_s]:
            del self._ends_s[incarnation]
        news: dict[str, list[Key]] = {}
        for key in list(self._waiting):
            lock = self._locks.get(key)
            if lock is None or lock.is_free or self.remaining_s(key, lock, now_s) <= 0:
                for incarnation in self._waiting.pop(key):
                    news.setdefault(incarnation, []).append(key)
        return news


def _may_take_over(request: LockRequest, lock: Lock) -> bool:
    return lock.owner == request.owner and (lock.session_id == request.session_id or not request.resume)

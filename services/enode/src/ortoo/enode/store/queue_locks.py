"""The locks of queues: decisions made in memory, stored in the log, answered when durable."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from ortoo.common.errors import OrtooError
from ortoo.common.process.clock import Clock
from ortoo.enode.changes.all import Change
from ortoo.enode.reading.waiting import wake_all
from ortoo.enode.recovery.restored import APART
from ortoo.enode.state.tables.locks import Lock, puts
from ortoo.enode.store.engine import Engine
from ortoo.enode.store.lock_table import Granted, Key, LockRequest, LockTable, Refused

GENERATION_BITS = 32
"""More generations than one log ever gives to a lock."""
TOPIC_MASK = (1 << GENERATION_BITS - 1) - 1
"""What of a topic's id its generations begin behind; they use the other half by themselves."""


class QueueLocks:
    """Takes, renews, frees and fences locks. Belongs to the event loop of its engine."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Go on with the locks in the log."""
        self._engine = engine
        self._clock = clock
        self.table = LockTable(engine.state.locks.all(), clock.monotonic_s())
        """The locks now, those on their way to the disk included."""
        self._storing: dict[Key, asyncio.Future[None]] = {}
        self.wanted = asyncio.Event()
        """Set while somebody waits for a lock to become free, which may happen by time alone."""

    async def take(self, requests: Sequence[LockRequest], more: Sequence[Change] = ()) -> list[Granted | Refused]:
        """Decide each request, in order; returns when what was granted is durable, and `more` changes with it.

        Errors: Overloaded, Unavailable; then nothing is granted, nor stored.
        """
        now_s = self._clock.monotonic_s()
        were = self._locks_of(request.key for request in requests)
        answers = [
            self.table.take(request, now_s, generation_above=self._given_before(request.key)) for request in requests
        ]
        if self.table.is_wanted:
            self.wanted.set()
        await self._store(were, more)
        # A lock that somebody else has just raised is told only when all that goes with it is durable.
        for request in requests:
            if (storing := self._storing.get(request.key)) is not None:
                await asyncio.wait([storing])
        return answers

    async def release(self, keys: Sequence[tuple[Key, str]]) -> list[bool]:
        """Free locks, each (key, session id); tells which the session held. Errors: Overloaded, Unavailable.

        None is said not to be held while the log takes nothing: it may have one whose grant met a failing disk.
        """
        self._engine.appender.check_load(0)
        were = self._locks_of(key for key, _ in keys)
        answers = [self.table.release(key, session_id) is not None for key, session_id in keys]
        await self._store(were)
        return answers

    async def fence(self, keys: Sequence[Key], changes: Callable[[Mapping[Key, int]], list[Change]]) -> None:
        """Raise the generations, so that owners have to take their locks again, and store `changes` of them with it.

        Nobody gets a lock under its new generation before all is durable. Errors: Overloaded, Unavailable.
        """
        were = self._locks_of(keys)
        generations = {key: self.table.fence(key, self._given_before(key)).generation for key in were}
        await self._store(were, changes(generations))

    def of_group(self, topic_id: int, group: str) -> list[tuple[int, Lock, float]]:
        """(queue id, lock, seconds it lives) of those that are held, by queue id."""
        now_s = self._clock.monotonic_s()
        held = []
        for queue_id, lock in self.table.of_group(topic_id, group):
            remaining_s = self.table.remaining_s((topic_id, group, queue_id), lock, now_s)
            if not lock.is_free and remaining_s > 0:
                held.append((queue_id, lock, remaining_s))
        return held

    def attached(self, incarnation: str) -> None:
        """A snode says that it is there."""
        self.table.attached(incarnation, self._clock.monotonic_s())

    def detached(self, incarnation: str) -> None:
        """The connection of a snode is gone."""
        self.table.detached(incarnation, self._clock.monotonic_s())

    def freed(self) -> dict[str, list[Key]]:
        """Locks that were refused and have become free, by the incarnation to tell."""
        freed = self.table.freed(self._clock.monotonic_s())
        if self.table.is_wanted:
            self.wanted.set()
        return freed

    def first_end_s(self) -> float:
        """In how many seconds the first lock ends that somebody else wants, if nothing happens."""
        return self.table.first_end_s(self._clock.monotonic_s())

    def held(self) -> set[tuple[int, str]]:
        """(topic id, group) of those that hold a lock."""
        return self.table.held(self._clock.monotonic_s())

    def _given_before(self, key: Key) -> int:
        """Above all generations of this lock that somebody may still hold.

        It may have been given first by a log of which this one is a backup, and nothing here tells of it. Who had it in
        a topic that is no more asks for it by the name of that: a topic made anew begins elsewhere.
        """
        lost = self._engine.appender.store_open // APART << GENERATION_BITS
        return max(lost + (key[0] & TOPIC_MASK), self._engine.state.offsets.generation(*key))

    def _locks_of(self, keys: Iterable[Key]) -> dict[Key, Lock | None]:
        return {key: self.table.get(key) for key in keys}

    async def _store(self, were: Mapping[Key, Lock | None], more: Sequence[Change] = ()) -> None:
        """Store what was decided of locks since they were so."""
        decided = {
            key: (was, now) for key, was in were.items() if (now := self.table.get(key)) is not None and now is not was
        }
        if not decided and not more:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._storing.update(dict.fromkeys(decided, done))
        try:
            await self._engine.store([*puts((key, now) for key, (_, now) in decided.items()), *more])
        except OrtooError:
            for key, (was, now) in decided.items():
                self.table.put_back(key, was, now)
            raise
        finally:
            done.set_result(None)
            for key in decided:
                if self._storing.get(key) is done:
                    del self._storing[key]
        for key, (was, now) in decided.items():
            queue = self._engine.catalog.queues.get((key[0], key[2]))
            if was is not None and was.generation != now.generation and queue is not None:
                wake_all(queue.waiters)  # a reader under the old generation shall hear that it is over

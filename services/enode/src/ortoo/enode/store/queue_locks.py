"""The locks of queues: decided in memory, stored in the log, and answered when durable."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from ortoo.common.errors import OrtooError
from ortoo.common.process.clock import Clock
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.reading.waiting import wake_all
from ortoo.enode.recovery.restored import OPENINGS_GAP
from ortoo.enode.state.tables.locks import Lock, lock_changes
from ortoo.enode.store.engine import Engine
from ortoo.enode.store.lock_table import LockDenied, LockGranted, LockKey, LockRequest, LockTable

GENERATION_BITS = 32
"""Bits for more generations than one log ever issues for a lock."""
TOPIC_MASK = (1 << GENERATION_BITS - 1) - 1
"""The bits of a topic's id behind which its generations begin; the other half of the numbers is for the count."""


class DurableQueueLocks:
    """Takes, renews, frees and fences locks. Belongs to the event loop of its engine."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Start with the locks in the log."""
        self._engine = engine
        self._clock = clock
        self.table = LockTable(engine.state.locks.all(), clock.monotonic_s())
        """The current locks, including those on their way to the disk."""
        self._in_flight: dict[LockKey, asyncio.Future[None]] = {}
        self.has_waiters = asyncio.Event()
        """Set while a client waits for a lock to become free, which may happen by time alone."""

    async def take(
        self, requests: Sequence[LockRequest], extra_changes: Sequence[StateChange] = ()
    ) -> list[LockGranted | LockDenied]:
        """Decide each request, in order; returns when the grants and `extra_changes` are durable.

        Errors: Overloaded, Unavailable. After an error nothing is granted or stored.
        """
        now_s = self._clock.monotonic_s()
        before = self._locks_of(request.key for request in requests)
        answers = [
            self.table.take(request, now_s, generation_above=self._generation_floor(request.key))
            for request in requests
        ]
        if self.table.has_waiters:
            self.has_waiters.set()
        await self._store(before, extra_changes)
        # If another request has just raised a lock, the answer waits until all its changes are durable.
        for request in requests:
            if (storing := self._in_flight.get(request.key)) is not None:
                await asyncio.wait([storing])
        return answers

    async def release(self, keys: Sequence[tuple[LockKey, str]]) -> list[bool]:
        """Free locks, each (key, session id); returns whether the session held each. Errors: Overloaded, Unavailable.

        While the log accepts no writes, an error is raised, because a grant with unknown outcome may be in the log.
        """
        self._engine.appender.check_accepting(0)
        before = self._locks_of(key for key, _ in keys)
        answers = [self.table.release(key, session_id) is not None for key, session_id in keys]
        await self._store(before)
        return answers

    async def fence(
        self,
        keys: Sequence[LockKey],
        changes: Callable[[Mapping[LockKey, int]], list[StateChange]],
        check: Callable[[], object] | None = None,
    ) -> None:
        """Raise the generations, so that owners must take their locks again, and store `changes(new generations)`.

        No lock is granted with its new generation before all is durable. `check` runs right before the changes are
        stored. Errors: Overloaded, Unavailable, and those of `check`.
        """
        before = self._locks_of(keys)
        generations = {key: self.table.fence(key, self._generation_floor(key)).generation for key in before}
        await self._store(before, changes(generations), check)

    def of_group(self, topic_id: int, group: str) -> list[tuple[int, Lock, float]]:
        """(queue id, lock, remaining seconds) of the held locks, by queue id."""
        now_s = self._clock.monotonic_s()
        held = []
        for queue_id, lock in self.table.of_group(topic_id, group):
            remaining_s = self.table.remaining_s((topic_id, group, queue_id), lock, now_s)
            if not lock.is_free and remaining_s > 0:
                held.append((queue_id, lock, remaining_s))
        return held

    async def durable_of_group(self, topic_id: int, group: str) -> list[tuple[int, Lock, float]]:
        """As `of_group`, when all changes of the listed locks are durable: a change that fails is never listed."""
        while storing := [one for key, one in self._in_flight.items() if key[:2] == (topic_id, group)]:
            await asyncio.wait(storing)
        return self.of_group(topic_id, group)

    def attach(self, incarnation: str) -> None:
        """Record a sign of life of a snode."""
        self.table.attach(incarnation, self._clock.monotonic_s())

    def detach(self, incarnation: str) -> None:
        """Record that the connection of a snode ended."""
        self.table.detach(incarnation, self._clock.monotonic_s())

    def take_freed(self) -> dict[str, list[LockKey]]:
        """Requested locks that have become free, by the incarnation to notify."""
        freed = self.table.take_freed(self._clock.monotonic_s())
        if self.table.has_waiters:
            self.has_waiters.set()
        return freed

    def next_end_s(self) -> float:
        """Seconds until the first awaited lock expires, if it is not renewed."""
        return self.table.next_end_s(self._clock.monotonic_s())

    def groups_with_locks(self) -> set[tuple[int, str]]:
        """(topic id, group) of all held locks."""
        return self.table.groups_with_locks(self._clock.monotonic_s())

    def _generation_floor(self, key: LockKey) -> int:
        """A number above all generations of this lock that a client may still hold.

        The original of a restored backup may have issued generations that this log does not contain. A client may use a
        lock of a deleted topic by the topic's name. So the generations of a topic created again start at a different
        number.
        """
        lost_generations = self._engine.appender.store_open // OPENINGS_GAP << GENERATION_BITS
        return max(lost_generations + (key[0] & TOPIC_MASK), self._engine.state.offsets.generation(*key))

    def _locks_of(self, keys: Iterable[LockKey]) -> dict[LockKey, Lock | None]:
        return {key: self.table.get(key) for key in keys}

    async def _store(
        self,
        before: Mapping[LockKey, Lock | None],
        extra_changes: Sequence[StateChange] = (),
        check: Callable[[], object] | None = None,
    ) -> None:
        """Store the locks that changed since `before`."""
        decided = {
            key: (was, now)
            for key, was in before.items()
            if (now := self.table.get(key)) is not None and now is not was
        }
        if not decided and not extra_changes:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight.update(dict.fromkeys(decided, done))
        try:
            changed = lock_changes((key, now) for key, (_, now) in decided.items())
            await self._engine.store([*changed, *extra_changes], check)
        except OrtooError:
            for key, (was, now) in decided.items():
                self.table.undo(key, was, now)
            raise
        finally:
            done.set_result(None)
            for key in decided:
                if self._in_flight.get(key) is done:
                    del self._in_flight[key]
        for key, (was, now) in decided.items():
            queue = self._engine.catalog.queues.get((key[0], key[2]))
            if was is not None and was.generation != now.generation and queue is not None:
                wake_all(queue.waiters)  # a reader under the old generation must learn that it is fenced

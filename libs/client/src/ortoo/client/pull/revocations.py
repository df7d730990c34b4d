"""Releases queues: waits for handlers, then commits the last offsets and unlocks."""

from collections.abc import Collection

from ortoo.client import log_events
from ortoo.client.core.queues import Queue
from ortoo.client.offsets.store import OffsetStore
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.queue_locks import QueueLocks
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock

LOOK_S = 0.02
_log = get_logger("consumer")


class Handover:
    """The queues that a member is about to release."""

    def __init__(self, store: OffsetStore, locks: QueueLocks | None, clock: Clock, *, wait_ms: float) -> None:
        """Wait for handlers for up to `wait_ms` at a time."""
        self._store = store
        self._locks = locks
        self._clock = clock
        self._wait_s = wait_ms / 1000
        self._leaving: dict[Queue, tuple[ProcessQueue, bool]] = {}

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._leaving

    def __getitem__(self, queue: Queue) -> ProcessQueue:
        return self._leaving[queue][0]

    @property
    def locked(self) -> Collection[Queue]:
        """Queues whose locks are still held and must be renewed."""
        return [queue for queue, (_, ours) in self._leaving.items() if ours]

    def begin(self, queue: ProcessQueue, *, ours: bool) -> None:
        """Stop the delivery of a queue and begin its release; `ours` is False if its lock was lost."""
        queue.drop()
        self._leaving[queue.queue] = (queue, ours)

    async def settle(self, *, patient: bool) -> bool:
        """Release the queues whose handlers have finished; returns whether all are released.

        Handlers get `wait_ms` to finish. After it an unordered queue is released anyway. `patient` keeps it locked
        until they have finished.
        """
        deadline_s = self._clock.monotonic_s() + self._wait_s
        while any(it.running for it, _ in self._leaving.values()) and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(LOOK_S)
        done = {queue: ours for queue, (it, ours) in self._leaving.items() if not (patient and it.running)}
        ours = [queue for queue, is_ours in done.items() if is_ours]
        for queue in ours:
            self._store.table.update(queue, self._leaving[queue][0].commit_offset, increase_only=True)
        try:
            await self._store.persist(ours)
        except OrtooError as error:
            _log.emit(log_events.FINAL_OFFSET_COMMIT_FAILED, reason=str(error))
        for queue in done:
            del self._leaving[queue]
            self._store.table.forget(queue)
        if self._locks is not None:
            await self._locks.give_back(ours)
        return not self._leaving

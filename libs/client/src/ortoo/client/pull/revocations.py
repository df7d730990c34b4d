"""Releases queues: waits for handlers, then commits the last offsets and unlocks."""

from collections.abc import Collection

from ortoo.client import log_events
from ortoo.client.core.queues import Queue
from ortoo.client.offsets.store import OffsetStore
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.queue_locks import ConsumerQueueLocks
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock

POLL_S = 0.02
_log = get_logger("consumer")


class QueueRevocations:
    """The queues that a member is about to release."""

    def __init__(self, store: OffsetStore, locks: ConsumerQueueLocks | None, clock: Clock, *, wait_ms: float) -> None:
        """Wait for handlers for up to `wait_ms` at a time."""
        self._store = store
        self._locks = locks
        self._clock = clock
        self._wait_s = wait_ms / 1000
        self._revoking: dict[Queue, tuple[ProcessQueue, bool]] = {}

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._revoking

    def __getitem__(self, queue: Queue) -> ProcessQueue:
        return self._revoking[queue][0]

    @property
    def locked_queues(self) -> Collection[Queue]:
        """Queues that are being released and whose locks are still held. These locks must be renewed."""
        return [queue for queue, (_, ours) in self._revoking.items() if ours]

    def add(self, queue: ProcessQueue, *, holds_lock: bool) -> None:
        """Stop the delivery of a queue and begin its release; `holds_lock` is False if the queue's lock was lost."""
        queue.drop()
        self._revoking[queue.queue] = (queue, holds_lock)

    async def complete(self, *, wait_for_handlers: bool) -> bool:
        """Release the queues whose handlers have finished; returns whether all are released.

        Handlers get `wait_ms` to finish. After that time, queues are released with handlers still running. With
        `wait_for_handlers`, such queues stay locked instead until their handlers have finished.
        """
        deadline_s = self._clock.monotonic_s() + self._wait_s
        while any(it.running_handlers for it, _ in self._revoking.values()) and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(POLL_S)
        finished = {
            queue: ours
            for queue, (it, ours) in self._revoking.items()
            if not (wait_for_handlers and it.running_handlers)
        }
        locked = [queue for queue, is_ours in finished.items() if is_ours]
        for queue in locked:
            self._store.table.update(queue, self._revoking[queue][0].commit_offset, increase_only=True)
        try:
            await self._store.persist(locked)
        except OrtooError as error:
            _log.emit(log_events.FINAL_OFFSET_COMMIT_FAILED, reason=str(error))
        for queue in finished:
            del self._revoking[queue]
            self._store.table.forget(queue)
        if self._locks is not None:
            await self._locks.release(locked)
        return not self._revoking

"""A group member that pulls: its queues, from joining to leaving."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ortoo.client import log_events
from ortoo.client.core.closed import ConsumerClosed
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.core.suspension import Suspension
from ortoo.client.core.wire import wire_queue
from ortoo.client.offsets.losses import LossLog
from ortoo.client.offsets.offset_file import OffsetFile, offset_path
from ortoo.client.offsets.offset_lookup import start_offsets
from ortoo.client.offsets.store import LocalOffsets, OffsetStore, RemoteOffsets
from ortoo.client.pull.assignment import QueueAssignment
from ortoo.client.pull.flow_control import FlowControlCounts
from ortoo.client.pull.process_queue import ProcessQueue, round_robin
from ortoo.client.pull.queue_locks import ConsumerQueueLocks
from ortoo.client.pull.queue_puller import QueuePuller
from ortoo.client.pull.revocations import QueueRevocations
from ortoo.client.pull.settings import PullSettings
from ortoo.client.sessions.group_view import GroupView, assignment_change
from ortoo.client.sessions.session import Session
from ortoo.common.errors import NotFound, OrtooError, Unsupported
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background, pause
from ortoo.v1 import session_pb2

LEAVE_TIMEOUT_S = 10.0
COMMIT_SOON_S = 0.05
T = TypeVar("T")
DirectHandler = Callable[[ReceivedMessage], Awaitable[BaseException | None]]
"""Processes one message and returns the failure of the handler, or None."""
_log = get_logger("consumer")


class PullMember:
    """A group member: takes its assigned queues, pulls them, commits offsets, and leaves gracefully.

    Without topics, the member joins no group, takes no locks, and has the queues given to `assign`.
    """

    def __init__(
        self,
        connection: Connection,
        session: Session,
        group: str,
        topics: Mapping[str, Filter],
        settings: PullSettings,
    ) -> None:
        """Nothing is sent before `join`."""
        self.settings = settings
        self.group = group
        self.has_messages = asyncio.Event()
        """Set when there may be messages to take, or a failure."""
        self.failure: OrtooError | None = ConsumerClosed(
            f"this consumer is not in {group!r} yet; enter it with `async with`"
        )
        """The reason why this member gets no messages; None = it does."""
        self.is_ordered = False
        """Whether a queue is released only when none of its messages is in a handler."""
        self.flow_control_counts = FlowControlCounts()
        self.losses = LossLog(settings.on_loss)
        self.direct_handler: DirectHandler | None = None
        self.limits = settings.limits
        self._connection = connection
        self._clock = connection.clock
        self._session = session
        self._background = Background(f"member of {group}")
        self._assignment = QueueAssignment(connection, session, group, topics, settings)
        self._locks = None
        if topics and not settings.broadcast:
            self._locks = ConsumerQueueLocks(connection, session, group, settings.lock_trust_ms / 1000)
        self._offset_store: OffsetStore
        self._owned: dict[Queue, QueuePuller] = {}
        self._revocations: QueueRevocations
        self._lock_session_id = ""
        """The session that took the locks last; they end with it unless another session renews them."""
        self._progress = asyncio.Event()
        """Set when messages are finished whose commit the server awaits."""
        self._suspension = Suspension()
        self._last_served: Queue | None = None
        """The queue that was served last."""

    # joining and leaving

    async def join(self) -> None:
        """Join the group. Errors: those of the server, or DataLoss for a damaged offset file."""
        self._offset_store = self._new_store()
        self._revocations = QueueRevocations(
            self._offset_store, self._locks, self._clock, wait_ms=self.settings.leave_wait_ms
        )
        await self._background.__aenter__()
        self.failure = None
        try:
            if self._assignment.is_member:
                await self._session.join(self._assignment.registration, self)
        except BaseException as error:
            await self._background.__aexit__(type(error), error, error.__traceback__)
            raise
        settings, clock, every = self.settings, self._clock, self._background.every
        self._background.spawn("balance", self._run_rebalance())
        every("members", settings.rebalance_interval_ms / 1000, self._assignment.refresh_members, clock=clock)
        first_s = settings.commit_first_ms / 1000
        self._background.after("commit soon", self._progress, COMMIT_SOON_S, self.commit, clock=clock)
        every("offsets", settings.commit_interval_ms / 1000, self.commit, clock=clock, first_s=first_s)
        if self._locks is not None:
            every("locks", settings.lock_renewal_ms / 1000, self._renew_locks, clock=clock)

    async def leave(self) -> None:
        """Stop pulling, wait for handlers, commit offsets, release locks, and leave the group."""
        self.failure = ConsumerClosed(f"this consumer has left {self.group!r}; make a new one")
        for queue in list(self._owned):
            self._revoke(queue)
        try:
            await self._background.__aexit__(None, None, None)
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._revocations.complete(wait_for_handlers=False)
                if self._locks is not None:
                    await self._locks.release(self._locks.held)  # locks of queues that were not started
        except TimeoutError:
            _log.emit(log_events.FINAL_OFFSET_COMMIT_TIMEOUT, group=self.group)
        finally:  # also when cancelled, so that no dead member stays in the group
            if self._assignment.is_member:
                self._session.leave(self.group)
            self.has_messages.set()

    def _new_store(self) -> OffsetStore:
        if self.settings.broadcast:
            path = offset_path(self.settings.offsets_folder, self._connection.client_id, self.group)
            return LocalOffsets(OffsetFile(path))
        return RemoteOffsets(self._connection, self.group, self._generation)

    def _generation(self, queue: Queue) -> int:
        """The generation of the lock under which a queue was consumed.

        A newer generation may belong to another owner or topic.
        """
        owned = self._owned.get(queue)
        return (owned.queue if owned is not None else self._revocations[queue]).generation

    # called by the consumer

    @property
    def queues(self) -> list[ProcessQueue]:
        """The queues of this member, sorted."""
        return [self._owned[queue].queue for queue in sorted(self._owned)]

    def owned_queue(self, queue: Queue) -> ProcessQueue:
        """A queue of this member. Errors: NotFound."""
        if queue not in self._owned:
            raise NotFound(f"this consumer does not have {queue} now", field="queue")
        return self._owned[queue].queue

    def check_open(self) -> None:
        """Raise the error because of which this member gets no messages, if there is such an error."""
        if self.failure is not None:
            raise self.failure

    def can_process(self, queue: ProcessQueue) -> bool:
        """Whether messages of the queue may be processed now: it is owned, not suspended, and its lock is trusted."""
        if queue.is_dropped or queue.queue in self._suspension:
            return False
        return self._locks is None or self._locks.is_trusted(queue.queue)

    def subscribe(self, topics: Mapping[str, Filter]) -> None:
        """Change the subscribed topics. Errors: Invalid for a consumer without a group."""
        self._assignment.subscribe(topics)
        for owned in self._owned.values():
            owned.filter = topics.get(owned.queue.queue.topic, owned.filter)

    def assign(self, queues: Iterable[Queue]) -> None:
        """Set the queues. Errors: Invalid for a group member."""
        self._assignment.assign(queues)

    def suspend(self, queues: Collection[Queue]) -> None:
        """Neither pull nor deliver messages of these queues, or of all queues if no queue is given."""
        self._suspension.suspend(queues)

    def resume(self, queues: Collection[Queue]) -> None:
        """Resume these queues, or all queues if no queue is given."""
        self._suspension.resume(queues)
        self.has_messages.set()

    def seek(self, queue: Queue, offset: int) -> None:
        """Continue at `offset`, which may be earlier or later. Errors: NotFound when the queue is not assigned."""
        self.owned_queue(queue).reset(offset)
        owned = self._owned[queue]
        owned.task.cancel()  # it may wait at the old offset
        owned.task = self._background.spawn(f"pull {queue.queue_id}", owned.run())

    def set_handler(self, handler: DirectHandler | None, *, ordered: bool) -> None:
        """Set the handler for `consume_directly`, and whether processing is ordered; then `span_max` does not apply."""
        self.is_ordered, self.direct_handler = ordered, handler
        self.limits = replace(self.settings.limits, span_max=None) if ordered else self.settings.limits
        self._assignment.changed.set()

    async def next_from(self, take: Callable[[ProcessQueue], T | None], timeout_s: float | None = None) -> T | None:
        """Call `take` for the queues in turn; returns the first result that is not None, or None after `timeout_s`.

        Errors: the reason why this member gets no messages.
        """
        deadline_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        waking: asyncio.Task[None] | None = None
        try:
            while self.failure is None:
                self.has_messages.clear()
                for queue in round_robin([owned.queue for owned in self._owned.values()], self._last_served):
                    if self.can_process(queue) and (taken := take(queue)) is not None:
                        self._last_served = queue.queue
                        return taken
                if deadline_s is not None:
                    if self._clock.monotonic_s() >= deadline_s:
                        return None
                    waking = waking or self._background.spawn("wake", self._wake_at(deadline_s))
                await self.has_messages.wait()
            raise self.failure
        finally:
            if waking is not None:
                waking.cancel()

    async def _wake_at(self, deadline_s: float) -> None:
        while (left_s := deadline_s - self._clock.monotonic_s()) > 0:  # a sleep may end slightly early
            await self._clock.sleep(left_s)
        self.has_messages.set()

    async def commit(self) -> None:
        """Commit the offsets of all queues. Errors: Unavailable when the offset file cannot be written."""
        for queue, owned in self._owned.items():
            is_monotonic = not (owned.queue.was_reset or self.is_ordered)
            self._offset_store.table.update(queue, owned.queue.commit_offset, increase_only=is_monotonic)
            owned.queue.was_reset = False
        for queue in await self._offset_store.persist(list(self._owned)):
            if queue in self._owned:
                self._on_lost(self._owned[queue].queue)

    # called by the session

    def on_members_changed(self, view: GroupView) -> None:
        """Recompute the assignment for a new list of members."""
        self._assignment.set_group_view(view)

    def on_refused(self, error: OrtooError) -> None:
        """Stop, because the server refused this member."""
        self.failure = error
        for queue in list(self._owned):
            self._revoke(queue)
        self.has_messages.set()

    def running_queues(self) -> list[session_pb2.RunningQueue]:
        """The queues of this member, for display."""
        found = []
        for it in self.queues:
            buffered, locked = it.buffered, self._locks is not None and self._locks.is_trusted(it.queue)
            found.append(
                session_pb2.RunningQueue(
                    group=self.group,
                    queue=wire_queue(it.queue),
                    offset=it.commit_offset,
                    next_offset=it.next_offset,
                    held_messages=buffered.messages,
                    held_bytes=buffered.size_bytes,
                    locked=locked,
                )
            )
        return found

    async def consume_directly(self, message: ReceivedMessage) -> BaseException | None:
        """Process one message immediately; returns the failure of the handler, or None."""
        if self.direct_handler is None:
            raise Unsupported("this consumer has no handler: the application polls messages")
        return await self.direct_handler(message)

    # assignment

    def check_retry_topic(self) -> None:
        """Look for the group's retry topic, which the first nack creates."""
        if not self._assignment.has_retry_topic:
            self._assignment.changed.set()

    async def _run_rebalance(self) -> None:
        while True:
            await self._assignment.changed.wait()
            self._assignment.changed.clear()
            try:
                is_complete = await self._rebalance()
            except OrtooError as error:
                self._connection.retry_log.emit(_log, log_events.REBALANCE_FAILED_RETRYING, error, group=self.group)
                is_complete = False
            if not is_complete:
                await pause(self.settings.lock_retry_ms / 1000, self._assignment.changed, self._clock)
                self._assignment.changed.set()

    async def _rebalance(self) -> bool:
        """Take and release queues according to the assignment; False if something must be retried soon."""
        if self.failure is not None:
            return True
        if self._session.session_id not in ("", self._lock_session_id):
            self._lock_session_id = self._session.session_id
            if self._locks is not None:
                await self.commit()  # before the new locks fence these, and the queues are pulled again
                await self._renew_locks()
        await self._assignment.subscribe_retry_topic()
        assigned = await self._assignment.assigned_queues()
        now_s = self._clock.monotonic_s()
        pulled = {it.queue: now_s if it.queue in self._suspension else it.pulled_at_s for it in self.queues}
        drop, take = assignment_change(pulled, assigned, self._assignment.topics, now_s)
        for queue in drop:
            self._revoke(queue)
        revoked = await self._revocations.complete(wait_for_handlers=self.is_ordered)
        acquirable = [queue for queue in take if queue not in self._revocations]
        acquired = await self._acquire(acquirable)
        self._update_limits()
        return revoked and acquired and len(acquirable) == len(take)

    async def _acquire(self, queues: Sequence[Queue]) -> bool:
        """Lock and start queues; returns whether all were started."""
        if not queues:
            return True
        acquired = list(queues)
        if self._locks is not None:
            held = await self._locks.acquire(acquired)
            acquired = [queue for queue in acquired if queue in held]
        starts = await start_offsets(self._connection, self._offset_store, acquired, self.settings.start)
        for queue, offset in starts.items():
            self._start(queue, offset)
        self._update_limits()  # before the first of them pulls
        await self.commit()
        return len(starts) == len(queues)

    def _update_limits(self) -> None:
        counts = Counter(queue.topic for queue in self._owned)
        for queue, owned in self._owned.items():
            owned.limits = self.limits.per_queue(counts[queue.topic])

    def _start(self, queue: Queue, offset: int) -> None:
        generation = self._locks.generation(queue) if self._locks is not None else 0
        process_queue = ProcessQueue(queue, offset, generation)
        locks = self._locks
        puller = QueuePuller(
            connection=self._connection,
            group=self.group,
            queue=process_queue,
            settings=self.settings,
            filter=self._assignment.filter_of(queue.topic),
            suspension=self._suspension,
            is_lock_trusted=lambda: locks is None or locks.is_trusted(queue),
            on_messages=self.has_messages.set,
            on_lost=self._on_lost,
            flow_control_counts=self.flow_control_counts,
            losses=self.losses,
        )
        process_queue.on_progress = self._progress.set
        process_queue.pulled_at_s = self._clock.monotonic_s()
        puller.task = self._background.spawn(f"pull {queue.queue_id}", puller.run())
        self._owned[queue] = puller
        self._offset_store.table.update(queue, offset)

    def _revoke(self, queue: Queue) -> None:
        """Stop pulling and delivering a queue. The queue is released when its handlers have finished."""
        owned = self._owned.pop(queue)
        owned.task.cancel()
        self._offset_store.table.update(queue, owned.queue.commit_offset, increase_only=not owned.queue.was_reset)
        self._revocations.add(owned.queue, holds_lock=True)
        self.has_messages.set()

    def _on_lost(self, queue: ProcessQueue) -> None:
        """Drop a queue whose lock was lost or that no longer exists; later results of its messages are ignored."""
        owned = self._owned.get(queue.queue)
        if owned is None or owned.queue is not queue:
            return
        del self._owned[queue.queue]
        owned.task.cancel()
        self._revocations.add(queue, holds_lock=False)
        self._offset_store.table.forget(queue.queue)
        if self._locks is not None:
            self._locks.discard(queue.queue)
        self._assignment.changed.set()

    async def _renew_locks(self) -> None:
        if self._locks is None:
            return
        held = await self._locks.acquire([*self._owned, *self._revocations.locked_queues])
        for queue, owned in list(self._owned.items()):
            if queue not in held or self._locks.generation(queue) != owned.queue.generation:
                _log.emit(log_events.QUEUE_LOCK_LOST, queue=str(queue))
                self._on_lost(owned.queue)
        self.has_messages.set()

"""One push session: a group member, its queues, its credit and its acknowledgements."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ortoo.common.directory.group import DEFAULTS
from ortoo.common.errors import Fenced
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.grpc.layers.call_memory import open_call_share
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import FETCH_BYTES_MAX, Interruption, LockRequest
from ortoo.snode.membership.group_members import CloseReason, GroupMember
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.feeder import FETCH_BYTES_MIN, SESSION_BYTES, Feeder, PushContext
from ortoo.snode.push.flow import Credit, QueueCursor
from ortoo.snode.push.interruptions import start_recording, unacknowledged_messages
from ortoo.snode.push.offset_commits import OffsetCommitBatcher
from ortoo.snode.push.outbox import Assignment, Delivery, PushOutbox, SessionClosed, SessionOpened
from ortoo.snode.push.plan import PushPlan
from ortoo.snode.push.queue_starts import QueueStarts
from ortoo.snode.push.redelivery import RedeliveryLimit

MEMORY_DIVISOR = 16
"""A read requests at most this fraction of the remaining memory, so reads get smaller as memory fills."""
FLUSH_TIMEOUT_S = 4.0
"""Time for which the next owner of a revoked queue waits while its acknowledgements are being stored."""
_log = get_logger("push")


class PushSession:
    """The push session of one client: an open Push call."""

    def __init__(self, context: PushContext, plan: PushPlan) -> None:
        """Make a session for a plan."""
        self.plan = plan
        self.session_id = context.randomness.id_text()
        self.group = plan.group
        self.client_id = plan.client_id or self.session_id
        self.member_session_id = plan.member_session_id or self.session_id
        """The session id under which the client is a group member."""
        self.last_active_s = context.clock.monotonic_s()
        self.is_closing = False
        self.has_left = False
        """Whether the client has said that it leaves. Otherwise it may have died."""
        self.call: asyncio.Task[Any] | None = None
        """The task that writes to the client; the caller that opens the session sets it."""
        self.on_end: Callable[[CloseReason, str], object] = lambda reason, message: None
        """Called with the reason when the session has to end."""
        self._context = context
        self._scope = context.background.scope("push session", failed=lambda _: self.on_failure())
        self._filters = plan.filters
        self._credit = Credit()
        self.memory = open_call_share(context.memory, "Push")
        """The memory that the session uses for the client."""
        self.outbox = PushOutbox(self.memory)
        """Events that wait to be sent to the client."""
        self.outbox.put_opened(
            SessionOpened(self.session_id, plan.heartbeat_interval_ms, plan.expiry_ms, self.client_id)
        )
        self.feeders: dict[Queue, Feeder] = {}
        """The feeder of each queue, with its positions."""
        self._initial_queues: dict[str, frozenset[tuple[int, Queue]]] = {}
        """By topic: the queues, with the topic's id, that existed when the session subscribed to the topic."""
        self._remember_queues()
        self._batchers: dict[tuple[str, int], OffsetCommitBatcher] = {}
        self._starts: dict[tuple[str, int], QueueStarts] = {}
        self._redelivery = RedeliveryLimit()
        self._may_be_sendable = asyncio.Event()
        self._suspended: frozenset[Queue] | None = frozenset()
        """The suspended queues; None = all."""

    @property
    def unacknowledged_bytes(self) -> int:
        """The bytes that were sent and are not acknowledged."""
        return sum(feeder.cursor.unacknowledged_bytes for feeder in self.feeders.values())

    @property
    def unacknowledged_bytes_max(self) -> int:
        """The limit of unacknowledged bytes, above which no message is sent."""
        group = self._context.directory.group(self.group)
        return group.unacknowledged_bytes_max if group is not None else DEFAULTS.unacknowledged_bytes_max

    def leave_group(self, member: GroupMember) -> None:
        """Remove the session from its group. A client that also has a client session stays an inactive group member."""
        membership = self._context.groups.membership
        if self.plan.member_session_id and member.active:
            membership.join(self.group, dataclasses.replace(member, active=False))
        elif not self.plan.member_session_id:
            membership.leave(self.group, self.client_id, self.session_id)

    def on_replaced(self) -> None:
        """End the session, because another session of the client has replaced it in the group."""
        message = f"another session of client {self.client_id} has replaced this one; give each client a unique id"
        self.on_end(CloseReason.REPLACED, message)

    def on_failure(self) -> None:
        """End the session after an internal error."""
        message = "the snode failed to serve the session and logged the details; open another session"
        self.on_end(CloseReason.EXPIRED, message)

    def awaiting_commit(self) -> Iterator[Feeder]:
        """The feeders of queues that wait for an acknowledgement and are not suspended."""
        for queue, feeder in self.feeders.items():
            if feeder.cursor.waiting_since_s is not None and not self._is_suspended(queue):
                yield feeder

    def touch(self) -> None:
        """Restart the session's timeout, because the client has sent a request."""
        self.last_active_s = self._context.clock.monotonic_s()

    def grant(self, messages: int, size_bytes: int) -> None:
        """Add credit that the client has granted."""
        self._credit.grant(messages, size_bytes)
        self._may_be_sendable.set()

    def commit(self, queue: Queue, offset: int, generation: int) -> None:
        """Record that the client has processed the messages of a queue before `offset`.

        Errors: Invalid if messages before `offset` were never sent.
        """
        feeder = self.feeders.get(queue)
        if feeder is None:
            _log.emit(log_events.COMMIT_TOO_LATE, queue=str(queue), offset=offset, session=self.session_id)
            return
        now_s = self._context.clock.monotonic_s()
        if not feeder.cursor.commit(offset, generation, now_s):
            return
        self._redelivery.on_committed(queue, offset, now_s)
        self._may_be_sendable.set()
        if (traces := self._context.traffic.traces) is not None:
            traces.on_committed(self.group, queue, offset)
        if self.plan.broadcast:
            self.outbox.put_committed(queue, offset, feeder.generation)
            return
        batcher = self._commit_batcher(queue.enode, feeder.topic_id)
        batcher.put(queue, offset, feeder.generation, feeder.fence)
        batcher.wake(self._context.background, "commit")

    def assign(self, generation: int, queues: list[Queue]) -> None:
        """Consume exactly these queues. Other queues are released when their acknowledged offsets are stored."""
        if self.is_closing:
            return
        assigned = set(queues)
        lost = [queue for queue in self.feeders if queue not in assigned or self._is_stale(queue)]
        for queue in lost:
            self._stop_queue(queue)
        if not assigned.isdisjoint(lost):  # a topic was recreated: its queues have the names of the old ones
            self._put_assignment(Assignment(generation, tuple(self.feeders)))
            generation = self._context.groups.membership.advance_generation(self.group)
        for feeder in self.feeders.values():
            feeder.generation = generation
        self._put_assignment(Assignment(generation, tuple(queues)))
        for queue in queues:
            if queue not in self.feeders:
                self._start_queue(queue, generation)

    def _put_assignment(self, event: Assignment) -> None:
        """Send an assignment; the credit of dropped deliveries is returned."""
        for delivery in self.outbox.put_assignment(event):
            self.grant(delivery.messages, delivery.size_bytes)

    def subscribe(self, filters: Mapping[str, MessageFilter | None]) -> None:
        """Change the topics and their filters. Queues of added or removed topics change with the next assignment."""
        self._filters = filters
        self._remember_queues()
        for queue, feeder in self.feeders.items():
            feeder.message_filter = filters.get(queue.topic, feeder.message_filter)

    def suspend(self, queues: frozenset[Queue] | None) -> None:
        """Suspend exactly these queues; None = all. Other queues resume, and their acknowledgement timeout restarts."""
        now_s = self._context.clock.monotonic_s()
        previous, self._suspended = self._suspended, queues
        for queue, feeder in self.feeders.items():
            if self._is_suspended(queue):
                self._redelivery.discard(queue)
            elif previous is None or queue in previous:
                feeder.cursor.restart_wait(now_s)
        self._may_be_sendable.set()

    def _is_suspended(self, queue: Queue) -> bool:
        return self._suspended is None or queue in self._suspended

    async def wait_until_sendable(self, queue: Queue) -> int | None:
        """Wait until there is credit and space in the outbox, and the queue is not suspended.

        Returns the number of messages that may be sent; None = unlimited.
        """
        while True:
            await self.outbox.wait_for_room()
            has_credit = self._credit.is_available and self.unacknowledged_bytes < self.unacknowledged_bytes_max
            messages_max = self._redelivery.messages_max(queue, self._unacknowledged_messages)
            if has_credit and messages_max != 0 and not self._is_suspended(queue):
                return messages_max
            self._may_be_sendable.clear()
            await self._may_be_sendable.wait()

    def send(self, delivery: Delivery) -> None:
        """Send a delivery and charge the client's credit."""
        self._credit.charge(delivery.messages, delivery.size_bytes)
        if delivery.messages:
            self._context.traffic.count_delivered(
                delivery.queue.topic, self.group, "push", delivery.messages, delivery.size_bytes
            )
        if (traces := self._context.traffic.traces) is not None and delivery.batch is not None:
            traces.on_pushed(self.group, delivery.queue, delivery.first_offset, delivery.next_offset, delivery.batch)
        if delivery.loss is not None:
            self._context.traffic.count_lost(
                delivery.queue.topic, self.group, delivery.next_offset - delivery.first_offset
            )
        self.outbox.deliver(delivery)

    def end_stalled_redelivery(self, now_s: float) -> None:
        """Send other messages, too, if the client acknowledges nothing while messages are redelivered."""
        if self._redelivery.end_if_stalled(now_s):
            self._may_be_sendable.set()

    async def close(self, reason: CloseReason, message: str, *, is_interrupted: bool = False) -> None:
        """End the session. Its queues are released when the acknowledged offsets are stored. Later calls do nothing.

        `is_interrupted`: a message may have crashed the client. Its unacknowledged messages are recorded.
        """
        if self.is_closing:
            return
        self.is_closing = True
        if is_interrupted:
            ids, all_sent = (self.group, self.client_id), not self.outbox.has_deliveries
            start_recording(self._context, *ids, self.feeders, self._redelivery, all_sent=all_sent)
        flushes = [self._stop_queue(queue) for queue in list(self.feeders)]
        self._context.groups.leave(self.group, self)
        try:
            if flushes:
                await asyncio.wait(flushes)
        finally:  # the end of the call cancels this task; its deliveries would stay until a garbage collection
            self.outbox.close(SessionClosed(reason, message))

    def _unacknowledged_messages(self) -> int:
        return unacknowledged_messages(feeder.cursor for feeder in self.feeders.values())

    async def _on_queue_started(self, feeder: Feeder, interruption: Interruption | None) -> None:
        """Park the message at which a queue starts if it has used its attempts; otherwise limit its redelivery."""
        if interruption is None:
            return
        queue, committed = feeder.cursor.queue, feeder.cursor.next_offset
        if interruption.attempts and await self._context.park(self.group, queue, interruption):
            feeder.parked_offset = interruption.offset
        else:
            self._redelivery.add(queue, interruption, committed, self._context.clock.monotonic_s())

    def _is_stale(self, queue: Queue) -> bool:
        """Whether the topic was deleted, or recreated, since the session took the queue."""
        topic = self._context.directory.find_topic(queue.topic)
        return topic is None or self.feeders[queue].topic_id != topic.topic_id

    def _start_queue(self, queue: Queue, generation: int, *, former: Feeder | None = None) -> None:
        """Start feeding a queue. `former` is the session's previous feeder of the queue, if any."""
        topic = self._context.directory.find_topic(queue.topic)
        if topic is None:
            return  # the topic was just deleted; the next assignment is without it
        start, lock = self._start_position(topic.topic_id, queue), None
        if not self.plan.broadcast:
            ids = (self.client_id, self.session_id)
            lock = LockRequest(self.group, topic.topic_id, queue.queue_id, *ids, resume=former is not None)
        if former is not None and former.topic_id == topic.topic_id and former.cursor.committed_offset is not None:
            start = dataclasses.replace(start, offsets={queue: former.cursor.committed_offset})  # of a broadcast
        feeder = Feeder(
            self._context,
            QueueCursor(queue, generation),
            topic.topic_id,
            self.group,
            self._filters.get(queue.topic),
            self.wait_until_sendable,
            self.send,
            start,
            lock,
            self._fetch_bytes,
            generation,
            self.memory,
            self._queue_starts(queue.enode, topic.topic_id),
            self._on_queue_started,
        )
        feeder.task = self._scope.start(f"feed {queue}", self._feed(feeder))
        self.feeders[queue] = feeder

    def _remember_queues(self) -> None:
        """Remember the existing queues of newly subscribed topics."""
        seen = {name: self._initial_queues[name] for name in self._filters if name in self._initial_queues}
        for name in self._filters:
            if name not in seen and (topic := self._context.directory.find_topic(name)) is not None:
                seen[name] = frozenset((topic.topic_id, queue) for queue in topic.read_queues())
        self._initial_queues = seen

    def _start_position(self, topic_id: int, queue: Queue) -> SessionStart:
        """The start rule of a queue. Queues added or recreated during the session start at their first message."""
        start, seen = self.plan.start, self._initial_queues.get(queue.topic, frozenset())
        if (topic_id, queue) in seen:
            return start
        start_from = StartFrom.FIRST if start.start_from is StartFrom.LAST else start.start_from
        is_recreated = all(seen_id != topic_id for seen_id, _ in seen)  # the client's offsets are of the old topic
        return dataclasses.replace(start, start_from=start_from, offsets={} if is_recreated else start.offsets)

    async def _feed(self, feeder: Feeder) -> None:
        queue, lock = feeder.cursor.queue, feeder.lock
        try:
            if lock is not None:
                await self._context.groups.acquire(self.group, queue, feeder)
            await feeder.run()
        except Fenced as error:
            if lock is not None and lock.resume and not feeder.fence:
                self.on_replaced()
            else:
                self._restart_queue(queue, str(error))

    def _on_commit_fenced(self, queue: Queue, fence: int) -> None:
        """Restart a queue, because the enode refused an acknowledgement with lock generation `fence`."""
        feeder = self.feeders.get(queue)
        if feeder is not None and feeder.fence == fence:
            self._restart_queue(queue, "an acknowledgement was refused")

    def _restart_queue(self, queue: Queue, reason: str) -> None:
        """Restart a queue whose lock has a newer generation, by an operator's order or because the lock expired."""
        feeder = self.feeders.get(queue)
        if feeder is None or self.is_closing:
            return
        _log.emit(
            log_events.QUEUE_DELIVERY_RESTARTED,
            queue=str(queue),
            group=self.group,
            session=self.session_id,
            reason=reason,
        )
        self._stop_queue(queue, flush=False)
        if (batcher := self._batchers.get((queue.enode, feeder.topic_id))) is not None:
            batcher.discard(queue)
        rest = tuple(self.feeders)
        advance = self._context.groups.membership.advance_generation
        self._put_assignment(Assignment(advance(self.group), rest))
        generation = advance(self.group)
        self._put_assignment(Assignment(generation, (*rest, queue)))
        self._start_queue(queue, generation, former=feeder)

    def _stop_queue(self, queue: Queue, *, flush: bool = True) -> asyncio.Task[Any]:
        feeder = self.feeders.pop(queue)
        self._redelivery.discard(queue)
        self._may_be_sendable.set()
        task = feeder.task
        del feeder.task  # its cancellation refers to the feeder and to its read: a reference cycle
        task.cancel()
        return self._context.background.run_contained("release", self._release_queue(queue, feeder, task, flush=flush))

    async def _release_queue(self, queue: Queue, feeder: Feeder, task: asyncio.Task[Any], *, flush: bool) -> None:
        """Release a queue to its next owner, when its acknowledgements are stored, or can no longer be stored."""
        try:
            if task is not asyncio.current_task():
                await asyncio.wait([task])
            if feeder.recording is not None:
                await asyncio.wait([feeder.recording])
            batcher = self._batchers.get((queue.enode, feeder.topic_id))
            if batcher is not None and flush:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_TIMEOUT_S):
                        await batcher.wait_until_stored(queue)
            if batcher is not None and queue not in self.feeders:
                batcher.discard(queue)
        finally:
            if (lock := feeder.lock) is not None and flush:
                self._context.locks.release(queue.enode, dataclasses.replace(lock, resume=False))
            self._context.groups.release(self.group, queue, feeder)

    def _queue_starts(self, enode: str, topic_id: int) -> QueueStarts:
        key = (enode, topic_id)
        starts = self._starts.get(key)
        if starts is None:
            links, background = self._context.links, self._context.background
            starts = self._starts[key] = QueueStarts(links, background, enode, topic_id, self.group)
        return starts

    def _commit_batcher(self, enode: str, topic_id: int) -> OffsetCommitBatcher:
        key = (enode, topic_id)
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = OffsetCommitBatcher(
                enode,
                topic_id,
                self.group,
                self._context.links,
                self.outbox.put_committed,
                self._on_commit_fenced,
                clock=self._context.clock,
                randomness=self._context.randomness,
            )
        return batcher

    def _fetch_bytes(self) -> int:
        share = min(SESSION_BYTES // max(1, len(self.feeders)), self._context.memory.left_bytes // MEMORY_DIVISOR)
        return max(FETCH_BYTES_MIN, min(FETCH_BYTES_MAX, share, self._credit.size_bytes))

"""Feeds one queue of a push session: reads whole batches, filters them, and delivers them while there is credit."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.errors import DataLoss, Fenced, NotFound, OrtooError, OutOfRange, Overloaded
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.selection import SelectedRows, select_rows, unexpired_rows
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare, ReservedBytes
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.records.sealed_batch import StoredBatch
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import (
    FETCH_WAIT_MS,
    EnodeLinks,
    FetchBatchesRequest,
    FetchedBatches,
    Interruption,
    LockRequest,
)
from ortoo.snode.enodes.queue_locks import SessionQueueLocks
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.membership.group_filters import GroupFilters, wanted_rows
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.flow import QueueCursor
from ortoo.snode.push.outbox import Delivery
from ortoo.snode.push.queue_starts import QueueStarts

FETCH_BYTES_MIN = 64 << 10
SESSION_BYTES = 8 << 20
"""Approximate memory that the reads of one session may hold together."""
SKIPPED_MAX = 65_536
"""Number of non-matching messages after which the client is notified of the new offset."""
LOGGED_FAILURE_NUMBER = 3
"""Of 30 consecutive failures, the failure with this number is logged, so that a short outage logs none."""
DAMAGED_READS_MAX = 3
"""Reads of damaged messages before they count as lost. Memory and cables can fail as well as disks."""
FILTER_WAIT_S = 600.0
"""Time for which a queue waits at a message that only other members' filters select. A deployment is shorter."""
FILTER_POLL_S = 1.0
Park = Callable[[str, Queue, Interruption], Awaitable[bool]]
"""Parks a message of a group if it has used its attempts; returns whether it is parked. Errors: retriable ones."""
_log = get_logger("push")


@dataclass(frozen=True, slots=True)
class PushContext:
    """The shared components of push sessions."""

    directory: DirectoryCache
    links: EnodeLinks
    groups: ConsumerGroups
    locks: SessionQueueLocks
    background: Background
    clock: Clock
    randomness: Randomness
    traffic: Traffic
    memory: MemoryBudget
    park: Park
    filters: GroupFilters


@dataclass(slots=True, eq=False)
class Feeder:
    """Delivers the messages of one queue to a push session."""

    context: PushContext
    cursor: QueueCursor
    topic_id: int
    group: str
    message_filter: MessageFilter | None
    """The filter; it may change at any time."""
    wait_until_sendable: Callable[[Queue], Awaitable[int | None]]
    """Waits until there is credit and space in the outbox, and the queue is not suspended.

    Returns the number of messages that may be sent; None = unlimited.
    """
    send: Callable[[Delivery], None]
    start: SessionStart
    lock: LockRequest | None
    """The lock to acquire first; None = broadcast, no lock."""
    fetch_bytes: Callable[[], int]
    generation: int
    """The generation of the assignment, for deliveries."""
    memory: MemoryShare
    """The memory of the session. Each read draws from it before it is requested."""
    starts: QueueStarts
    """The first offsets of the session's queues in this topic on this enode."""
    on_started: Callable[["Feeder", Interruption | None], Awaitable[None]]
    """Called with the interrupted delivery of an earlier session, before the first message is delivered."""
    recording: "asyncio.Task[Any] | None" = field(default=None, init=False)
    """The task that records the interruption of the queue at its enode; the queue is released after it."""
    parked_offset: int = field(default=-1, init=False)
    """The offset of a parked message, which is not delivered; -1 = none."""
    fence: int = field(default=0, init=False)
    """The generation of the queue's lock; 0 = no lock."""
    task: asyncio.Task[Any] = field(init=False)
    """The task that runs the feeder, until the session releases the queue."""
    _differing_since_s: float | None = field(default=None, init=False)
    """The time since which the filters of the group's members differ; None = they are equal."""
    _is_waiting_for_members: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _damaged_reads: int = field(default=0, init=False)
    """Number of reads with damaged messages since the last success. Other failures do not reset it."""
    _is_at_end: bool = field(default=False, init=False)
    """Whether the last read reached the end. The next read then waits for new messages without holding memory."""

    async def run(self) -> None:
        """Acquire the queue's lock, then deliver the queue's messages; never returns.

        Errors: Fenced if another session has the lock, or an operator moved the group's offset.
        """
        await self._retry(self._acquire)
        await self._retry(self._set_start_offset)
        while True:
            await self.wait_until_sendable(self.cursor.queue)
            await self._retry(self._read_and_deliver)
            if self._is_waiting_for_members:
                await self.context.clock.sleep(FILTER_POLL_S)

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until it succeeds, because an unreachable enode usually comes back. Errors: Fenced."""
        backoff = Backoff(first_s=0.05, max_s=1.0)
        while True:
            try:
                await step()
            except OutOfRange as error:
                self._move_into_range(error)
            except Fenced:
                raise
            except OrtooError as error:
                self._damaged_reads += isinstance(error, DataLoss)
                if (
                    isinstance(error, DataLoss)
                    and self._damaged_reads >= DAMAGED_READS_MAX
                    and self._skip_damaged(error)
                ):
                    continue
                if self._failures % 30 == LOGGED_FAILURE_NUMBER or (self._failures == 0 and not error.retriable):
                    _log.emit(log_events.QUEUE_READ_FAILED_RETRYING, queue=str(self.cursor.queue), reason=str(error))
                delay_s = backoff.delay_s(self._failures, self.context.randomness)
                if isinstance(error, Overloaded):
                    delay_s += error.retry_after_ms / 1000
                await self.context.clock.sleep(delay_s)
                self._failures += 1
            else:
                self._failures = self._damaged_reads = 0
                return

    async def _acquire(self) -> None:
        if self.lock is not None:
            self.fence = await self.context.locks.acquire(self.cursor.queue.enode, self.lock)

    async def _set_start_offset(self) -> None:
        queue = self.cursor.queue
        if self.lock is None:
            stored = self.start.offsets.get(queue)
            self.cursor.start(await self._first_offset() if stored is None else stored, is_committed=stored is not None)
            return
        if (committed := await self.starts.committed_offset(queue.queue_id)) is not None:
            self.cursor.start(committed.offset, is_committed=True)
            await self.on_started(self, committed.interruption)
            return
        start = await self._first_offset()
        # From here on the group subscribes: messages stored from now on are its own, even if this session ends before
        # it has acknowledged anything.
        await self.starts.commit(queue.queue_id, start, self.fence)
        self.cursor.start(start, is_committed=False)

    async def _first_offset(self) -> int:
        queue = self.cursor.queue
        rule = self.start.start_from_in(queue)
        if rule is StartFrom.TIME:
            link = self.context.links.to(queue.enode)
            return await link.find_offset(self.topic_id, queue.queue_id, self.start.time_ms)
        found = await self.starts.stored_range(queue.queue_id)
        if found is None:
            raise NotFound(f"enode {queue.enode} does not have queue {queue} yet", field="queue_id")
        return found.begin_offset if rule is StartFrom.FIRST else found.end_offset

    async def _read_and_deliver(self) -> None:
        cursor = self.cursor
        bytes_max = self.fetch_bytes()
        with self.memory.reserved(0 if self._is_at_end else bytes_max) as held:
            request = FetchBatchesRequest(
                self.topic_id,
                cursor.queue.queue_id,
                cursor.next_offset,
                bytes_max=bytes_max,
                wait_ms=FETCH_WAIT_MS,
                group=self.group if self.fence else "",
                generation=self.fence,
            )
            fetched = await self.context.links.to(cursor.queue.enode).fetch(request)
            self._is_at_end = fetched.next_offset >= fetched.end_offset
            held.resize(fetched.size_bytes)
            await self._deliver(fetched, held)

    async def _deliver(self, fetched: FetchedBatches, held: ReservedBytes) -> None:
        cursor = self.cursor
        self._is_waiting_for_members = False
        cursor.end_offset = fetched.end_offset
        for stored in fetched.batches:
            while True:  # once, unless only a part of the batch may be sent
                messages_max = await self.wait_until_sendable(cursor.queue)  # first: filter and expiry may change
                end, wanted_offset = self._end_of_part(messages_max), self._wanted_offset(stored)
                if wanted_offset == cursor.next_offset:
                    self._is_waiting_for_members = True
                    return
                part = select_rows(
                    stored,
                    cursor.next_offset,
                    min((one for one in (end, wanted_offset) if one is not None), default=None),
                    self.message_filter,
                    now_ms=self.context.clock.now_ms(),
                )
                if part.expired:
                    self.context.traffic.count_expired(cursor.queue.topic, self.group, part.expired)
                cursor.advance(part.next_offset)
                if cursor.next_offset == self.parked_offset:
                    cursor.advance(self.parked_offset + 1)
                is_last = cursor.next_offset >= stored.next_offset
                if is_last:
                    held.resize(held.bytes - len(stored.batch.records))
                if part.batch is not None:
                    self._send_part(part)
                if is_last:
                    break
        if cursor.unreported_count and (
            cursor.next_offset >= fetched.end_offset or cursor.unreported_count >= SKIPPED_MAX
        ):
            self._send(Delivery(cursor.queue, self.generation, self.topic_id, cursor.sent_offset, cursor.next_offset))

    def _end_of_part(self, messages_max: int | None) -> int | None:
        """The offset before which the next part of a batch ends; None = at the end of the batch."""
        begin = self.cursor.next_offset
        ends = [] if messages_max is None else [begin + messages_max]
        if begin <= self.parked_offset:
            ends.append(self.parked_offset)
        return min(ends, default=None)

    def _wanted_offset(self, stored: StoredBatch) -> int | None:
        """The first message of a batch that only other members' filters select; None if there is none.

        The queue waits for it: the members' filters become equal, or the queue gets another owner. After a long time
        the message is skipped, because the filters may differ permanently.
        """
        if self.message_filter is None or self.lock is None:
            return None
        differing = self.context.filters.differing(self.group, self.cursor.queue.topic)
        if not differing:
            self._differing_since_s = None
            return None
        now_s = self.context.clock.monotonic_s()
        self._differing_since_s = now_s if self._differing_since_s is None else self._differing_since_s
        if now_s - self._differing_since_s >= FILTER_WAIT_S:
            return None
        opened = OpenedBatch(stored.batch)
        own = self.message_filter.select(opened)
        alive = unexpired_rows(opened, self.context.clock.now_ms())
        first = self.cursor.next_offset - stored.first_offset
        wanted = set[int]() if own is None else wanted_rows(differing, opened).difference(own.tolist())
        rows = [row for row in wanted if row >= first and (alive is None or row in alive)]
        return stored.first_offset + min(rows) if rows else None

    def _send_part(self, part: SelectedRows) -> None:
        assert part.batch is not None
        self._send(
            Delivery(
                self.cursor.queue,
                self.generation,
                self.topic_id,
                part.first_offset,
                part.next_offset,
                part.stored_at_ms,
                part.batch,
                part.rows,
                part.messages,
            )
        )

    def _send(self, delivery: Delivery) -> None:
        now_s, last_message_offset = self.context.clock.monotonic_s(), delivery.last_message_offset
        self.cursor.on_sent(delivery.next_offset, now_s, delivery.size_bytes, delivery.messages, last_message_offset)
        self.send(delivery)

    def _skip_damaged(self, error: DataLoss) -> bool:
        """Skip damaged messages and report them to the client as lost; False if the end of the damage is unknown."""
        cursor = self.cursor
        if cursor.next_offset < 0 or error.end_offset <= cursor.next_offset:
            return False
        queue, begin, end = cursor.queue, cursor.next_offset, error.end_offset
        _log.emit(log_events.MESSAGES_LOST_TO_GROUP, queue=str(queue), begin=begin, end=end, reason=error.message)
        if cursor.unreported_count:
            self._send(Delivery(queue, self.generation, self.topic_id, cursor.sent_offset, begin))
        cursor.advance(end)
        self._send(Delivery(queue, self.generation, self.topic_id, begin, end, loss=error))
        self._failures = self._damaged_reads = 0
        return True

    def _move_into_range(self, error: OutOfRange) -> None:
        """Continue within the stored range, because earlier messages expired or the log was lost.

        Errors: Fenced if the client has messages beyond the end, whose offsets will be reused for other messages.
        """
        cursor = self.cursor
        is_behind = cursor.next_offset < error.begin_offset
        to = error.begin_offset if is_behind else error.end_offset
        _log.emit(log_events.OFFSET_OUT_OF_RANGE, queue=str(cursor.queue), at=cursor.next_offset, to=to)
        if is_behind:
            cursor.advance(to)  # the client gets the expired messages reported as non-matching ones
        elif cursor.has_sent and to < cursor.sent_offset:
            raise Fenced(
                f"queue {cursor.queue} ends at offset {to}, but messages up to {cursor.sent_offset} were delivered"
            )
        else:
            cursor.jump(to)

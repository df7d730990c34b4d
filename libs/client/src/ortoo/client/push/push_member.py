"""The group membership of a push consumer: its sessions, delivered messages and acknowledgements."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial

from ortoo.client import log_events
from ortoo.client.core.closed import ConsumerClosed, running_loop_check
from ortoo.client.core.connection import Connection
from ortoo.client.core.progress import BatchProgress, QueueProgress
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import BatchOwner, ReceivedBatch
from ortoo.client.core.reconnecting_session import ReconnectingSession
from ortoo.client.core.suspension import QueueHold, Suspension
from ortoo.client.core.wire import queue_of, received_batch, subscription, wire_queue
from ortoo.client.offsets.losses import LossLog, LostMessages
from ortoo.client.offsets.offset_lookup import start_offsets
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.produce.routes import readable_queues
from ortoo.client.requests.replies import send_reply
from ortoo.common.errors import OrtooError
from ortoo.common.groups.group_topics import RETRY_PREFIX
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import consumer_pb2

_log = get_logger("consumer")


class _QueueDeliveries(QueueProgress):
    """The deliveries of one queue during one assignment, and the objects that all of them share."""

    def __init__(self, queue: Queue, owner: BatchOwner) -> None:
        super().__init__()
        self.queue = queue
        self.owner = owner


class PushMember(ReconnectingSession[consumer_pb2.PushRequest, BulkMessage]):
    """Handles the events of a session, buffers delivered batches, and grants new credit for finished ones."""

    def __init__(
        self,
        connection: Connection,
        opening: consumer_pb2.OpenSession,
        losses: LossLog,
        *,
        messages_max: int,
        bytes_max: int,
        broadcast: LocalOffsets | None,
        start_rule: StartRule,
    ) -> None:
        """Join with `opening`; at most `messages_max` messages and `bytes_max` bytes are unacknowledged.

        `broadcast` stores the offsets of a broadcast consumer; `start_rule` says where a queue without an offset
        starts.
        """
        super().__init__(connection, bulk_calls.push, consumer_pb2.PushRequest)
        self.queues: tuple[Queue, ...] = ()
        self.failure: OrtooError | None = ConsumerClosed(
            f"this consumer is not in {opening.group!r} yet; enter it with `async with`"
        )
        """The reason why there is no session; None = there is or will be one."""
        self.losses = losses
        self.has_progress = asyncio.Event()
        """Set when `report_progress` has something to send."""
        self._opening = opening
        self._broadcast = broadcast
        self._start_rule = start_rule
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._generation = 0
        self._progress: dict[Queue, _QueueDeliveries] = {}
        self._buffer: deque[ReceivedBatch] = deque()
        self._arrived = asyncio.Event()
        self._pending_credit_messages = 0
        self._pending_credit_bytes = 0
        self._suspension = Suspension()
        self._retry_subscription: consumer_pb2.Subscription | None = None
        """The subscription to the group's retry topic, if there is one."""
        self._early_credited: set[int] = set()
        """Ids of buffered batches of suspended queues, whose credit was returned for other queues."""

    def open(self) -> None:
        """Mark the consumer as entered."""
        self.failure = None

    def check_open(self) -> None:
        """Raise the error because of which this member has no session, if there is such an error."""
        if self.failure is not None:
            raise self.failure

    async def next_batch(self) -> ReceivedBatch:
        """The next batch in order of arrival. Errors: the refusal of the server, or ConsumerClosed."""
        while self._is_closing or (batch := self._take()) is None:
            self.check_open()
            self._arrived.clear()
            await self._arrived.wait()
        return batch

    def _take(self) -> ReceivedBatch | None:
        if not self._suspension:
            return self._buffer.popleft() if self._buffer else None
        for number, batch in enumerate(self._buffer):
            if batch.queue not in self._suspension:
                del self._buffer[number]
                return batch
        return None

    def suspend(self, queues: Collection[Queue]) -> None:
        """Stop taking messages from these queues, or from all queues if no queue is given.

        Suspended queues stay assigned.
        """
        self._suspension.suspend(queues)
        self._apply_suspension()

    def resume(self, queues: Collection[Queue]) -> None:
        """Resume these queues, or all queues if no queue is given."""
        self._suspension.resume(queues)
        self._apply_suspension()
        self._arrived.set()

    def hold(self, queue: Queue) -> QueueHold:
        """Suspend an ordered queue until the hold is released or the queue is lost."""
        hold = self._suspension.hold(queue)
        self._apply_suspension()
        return hold

    def release(self, hold: QueueHold) -> None:
        """End a hold. The queue resumes unless another hold or `suspend` applies to it."""
        self._suspension.release(hold)
        self._apply_suspension()
        self._arrived.set()

    @property
    def is_suspended(self) -> bool:
        """Whether all queues are suspended."""
        return self._suspension.is_all

    async def wait_resumed(self) -> None:
        """Wait while all queues are suspended and the member has not left."""
        while self._suspension.is_all and self.failure is None and not self._is_closing:
            self._arrived.clear()
            await self._arrived.wait()

    def _apply_suspension(self) -> None:
        self._send_suspended()
        for batch in self._buffer:
            self._update_early_credit(batch)

    def _update_early_credit(self, batch: ReceivedBatch) -> None:
        """Return the credit of a buffered batch of a suspended queue, so that other queues can use the credit."""
        is_early = batch.queue in self._suspension.queues
        if is_early and id(batch) not in self._early_credited:
            self._early_credited.add(id(batch))
            self._return_credit(len(batch), batch.size_bytes)
        elif not is_early and id(batch) in self._early_credited:
            self._early_credited.discard(id(batch))
            self._return_credit(-len(batch), -batch.size_bytes)

    def subscribe(self, subscriptions: Sequence[consumer_pb2.Subscription]) -> None:
        """Change the subscriptions of this session and later ones."""
        if self._retry_subscription is not None:
            subscriptions = [*subscriptions, self._retry_subscription]
        del self._opening.subscriptions[:]
        self._opening.subscriptions.extend(subscriptions)
        self._send(subscribe=consumer_pb2.Subscribe(subscriptions=subscriptions))

    def subscribe_retry_topic(self) -> None:
        """Subscribe to the group's retry topic."""
        if self._retry_subscription is None:
            subscriptions = list(self._opening.subscriptions)
            self._retry_subscription = subscription(RETRY_PREFIX + self._opening.group, "*")
            self.subscribe(subscriptions)

    def report_progress(self) -> None:
        """Acknowledge new progress, and grant the server new credit for finished messages."""
        if self._stream is None:
            return
        commits = {
            queue: offset
            for queue, progress in self._progress.items()
            if (offset := progress.take_commit_offset()) is not None
        }
        if commits:
            offsets = [
                consumer_pb2.CommittedOffset(queue=wire_queue(queue), offset=offset, generation=self._generation)
                for queue, offset in commits.items()
            ]
            self._send(commit=consumer_pb2.Commit(offsets=offsets))
            if self._broadcast is not None:
                for queue, offset in commits.items():  # smaller than before if a queue was reset
                    self._broadcast.table.update(queue, offset)
        if (
            self._pending_credit_messages >= 0
            and self._pending_credit_bytes >= 0
            and (self._pending_credit_messages or self._pending_credit_bytes)
        ):
            self._grant(self._pending_credit_messages, self._pending_credit_bytes)

    async def leave(self) -> None:
        """Acknowledge finished messages and leave the group. Waits a short time for the answer of the snode."""
        self.report_progress()
        self.failure = self.failure or ConsumerClosed(f"this consumer has left {self._opening.group!r}; make a new one")
        try:
            await self._close_session()
        finally:
            self._arrived.set()

    # the session

    async def _prepare_opening(self) -> bool:
        return self._broadcast is None or await self._load_start_offsets(self._broadcast)

    def _send_opening(self) -> None:
        self._send(open=self._opening)
        if self._suspension:
            self._send_suspended()
        self._grant(self._messages_max, self._bytes_max)

    def _on_refused(self, error: OrtooError) -> bool:
        if self._was_opened and error.retry_after_ms:
            return False  # an operator has disabled the group of a running consumer, and may enable it again
        self.failure = error
        self._arrived.set()
        return True

    def _on_stream_end(self) -> None:
        """Drop delivered and unacknowledged messages; the next session delivers them again."""
        self.queues = ()
        self._progress.clear()
        self._buffer.clear()
        self._early_credited.clear()

    async def _load_start_offsets(self, offsets: LocalOffsets) -> bool:
        """Load the start offset of each queue; returns False if the load failed and must be retried.

        A queue without an offset gets a start offset now, so that later messages are not missed.
        """
        topics = [it.topic for it in self._opening.subscriptions]
        try:
            await offsets.persist()
            queues = [queue for topic in topics for queue in await readable_queues(self._connection, topic)]
            starts = await start_offsets(self._connection, offsets, queues, self._start_rule)
            for queue, offset in starts.items():
                offsets.table.update(queue, offset)
            await offsets.persist()
        except OrtooError as error:
            if not error.retriable:
                self._is_closing = self._on_refused(error)
            _log.emit(log_events.BROADCAST_OFFSET_UNKNOWN, reason=str(error))
            return False
        del self._opening.start_offsets[:]
        self._opening.start_offsets.extend(
            consumer_pb2.QueueStart(queue=wire_queue(queue), offset=offset) for queue, offset in starts.items()
        )
        return True

    def _grant(self, messages: int, size_bytes: int) -> None:
        """Grant credit to the server; the grant includes the credit that was freed so far."""
        self._send(credit=consumer_pb2.Credit(messages=messages, bytes=size_bytes))
        self._pending_credit_messages = self._pending_credit_bytes = 0

    def _send_suspended(self) -> None:
        """Send the suspended queues; the request replaces the previous one."""
        queues = map(wire_queue, self._suspension.queues)
        self._send(suspend=consumer_pb2.Suspend(all=self._suspension.is_all, queues=queues))

    # called with responses

    def _on_response(self, bulky: BulkMessage) -> bool:
        response, (records,) = bulky
        kind = response.WhichOneof("event")
        if kind == "delivery":
            self._on_delivery(response.delivery, records, queue_of(response.delivery.queue))
        elif kind == "assignment":
            self._on_assignment(response.assignment.generation, list(map(queue_of, response.assignment.queues)))
        return self._on_session_event(response)

    def _on_assignment(self, generation: int, queues: Sequence[Queue]) -> None:
        """Set the queues of the session. Buffered batches of lost queues are dropped; the new owner receives them."""
        self._generation = generation
        self.queues = tuple(queues)
        owned = frozenset(queues)
        revoked = [self._progress.pop(queue) for queue in list(self._progress) if queue not in owned]
        messages, size_bytes = sum(it.messages for it in revoked), sum(it.size_bytes for it in revoked)
        for batch in self._buffer:
            if batch.queue not in owned and id(batch) in self._early_credited:
                self._early_credited.discard(id(batch))
                messages, size_bytes = messages - len(batch), size_bytes - batch.size_bytes
        self._buffer = deque(batch for batch in self._buffer if batch.queue in owned)
        if messages or size_bytes:
            self._return_credit(messages, size_bytes)
        if self._suspension.drop_holds(owned):
            self._apply_suspension()

    def _on_delivery(self, delivery: consumer_pb2.Delivery, records: bytes, queue: Queue) -> None:
        """Handle a batch, or an offset that advanced without a batch."""
        progress = self._progress.get(queue) or self._begin_deliveries(queue)
        if not delivery.HasField("batch"):
            if delivery.HasField("failure"):
                reason = delivery.failure.message
                self.losses.add(LostMessages(queue, delivery.first_offset, delivery.next_offset, reason))
            progress.add_batch(BatchProgress([], delivery.next_offset))
            self.has_progress.set()
            return
        batch = received_batch(delivery, progress.queue, records, generation=delivery.generation, owner=progress.owner)
        progress.add_batch(batch.progress)
        self._buffer.append(batch)
        if self._suspension:
            self._update_early_credit(batch)
        self._arrived.set()

    def _begin_deliveries(self, queue: Queue) -> _QueueDeliveries:
        def is_current() -> bool:
            current = self._progress.get(queue)
            # Without a reference to the deliveries, which are then freed with their assignment.
            return current is not None and current.owner is owner

        owner = BatchOwner(
            on_finished=self._on_finished,
            check_current=is_current,
            check_use=running_loop_check(),
            reply_call=partial(send_reply, self._connection),
        )
        deliveries = self._progress[queue] = _QueueDeliveries(queue, owner)
        return deliveries

    def _on_finished(self, batch: ReceivedBatch, count: int) -> None:
        if not batch.is_current:
            return  # its credit was returned when the queue or the session ended
        self._return_credit(count, self._progress[batch.queue].finish(batch.progress, count))

    def _return_credit(self, messages: int, size_bytes: int) -> None:
        self._pending_credit_messages += messages
        self._pending_credit_bytes += size_bytes
        self.has_progress.set()
        if self._pending_credit_messages * 4 >= self._messages_max or self._pending_credit_bytes * 4 >= self._bytes_max:
            self.report_progress()

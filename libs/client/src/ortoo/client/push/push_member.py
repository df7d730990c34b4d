"""The group membership of a push consumer: its sessions, delivered messages and acknowledgements."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from ortoo.client import log_events
from ortoo.client.core.closed import Left
from ortoo.client.core.connection import Connection
from ortoo.client.core.reconnecting_session import KeptSession
from ortoo.client.core.queues import RETRY_PREFIX, Queue
from ortoo.client.core.progress import BatchProgress, QueueProgress
from ortoo.client.core.received import ReceivedBatch
from ortoo.client.core.suspension import Hold, Suspension
from ortoo.client.core.wire import queue_of, received_batch, subscription, wire_queue
from ortoo.client.offsets.losses import Losses, LostMessages
from ortoo.client.offsets.offset_lookup import start_offsets
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.produce.routes import readable_queues
from ortoo.common.errors import OrtooError
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import consumer_pb2

_log = get_logger("consumer")


class PushMember(KeptSession[consumer_pb2.PushRequest, Bulky]):
    """Handles the events of a session, buffers delivered batches, and returns credit for finished ones."""

    def __init__(
        self,
        connection: Connection,
        opening: consumer_pb2.OpenSession,
        losses: Losses,
        *,
        messages_max: int,
        bytes_max: int,
        broadcast: LocalOffsets | None,
        rule: StartRule,
    ) -> None:
        """Join with `opening`; at most `messages_max` messages and `bytes_max` bytes are unacknowledged.

        `broadcast` stores the offsets of a broadcast consumer; `rule` is the start of a queue without one.
        """
        super().__init__(connection, bulk_calls.push, consumer_pb2.PushRequest)
        self.queues: tuple[Queue, ...] = ()
        self.failure: OrtooError | None = Left(
            f"this consumer is not in {opening.group!r} yet; enter it with `async with`"
        )
        """The reason why there is no session; None = there is or will be one."""
        self.losses = losses
        self.has_news = asyncio.Event()
        """Set when `report` has something to send."""
        self._opening = opening
        self._broadcast = broadcast
        self._rule = rule
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._generation = 0
        self._progress: dict[Queue, QueueProgress] = {}
        self._buffer: deque[ReceivedBatch] = deque()
        self._arrived = asyncio.Event()
        self._freed_messages = 0
        self._freed_bytes = 0
        self._suspension = Suspension()
        self._retries: consumer_pb2.Subscription | None = None
        """The subscription to the group's retry topic, if there is one."""
        self._lent: set[int] = set()
        """Ids of buffered batches of suspended queues, whose credit was returned for other queues."""

    def enter(self) -> None:
        """Mark the consumer as entered."""
        self.failure = None

    def check(self) -> None:
        """Raise the reason why there is no session."""
        if self.failure is not None:
            raise self.failure

    async def next_batch(self) -> ReceivedBatch:
        """The next batch in order of arrival. Errors: the refusal of the server, or Left."""
        while self._is_leaving or (batch := self._take()) is None:
            self.check()
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
        """Stop taking messages from these queues, or from all if none is given; they stay assigned."""
        self._suspension.suspend(queues)
        self._suspension_changed()

    def resume(self, queues: Collection[Queue]) -> None:
        """Resume these queues, or all if none is given."""
        self._suspension.resume(queues)
        self._suspension_changed()
        self._arrived.set()

    def hold(self, queue: Queue) -> Hold:
        """Suspend an ordered queue until the hold is released or the queue is lost."""
        hold = self._suspension.hold(queue)
        self._suspension_changed()
        return hold

    def release(self, hold: Hold) -> None:
        """Release one hold of its queue."""
        self._suspension.release(hold)
        self._suspension_changed()
        self._arrived.set()

    @property
    def is_suspended(self) -> bool:
        """Whether all queues are suspended."""
        return self._suspension.everything

    async def until_resumed(self) -> None:
        """Wait while all queues are suspended and the member has not left."""
        while self._suspension.everything and self.failure is None and not self._is_leaving:
            self._arrived.clear()
            await self._arrived.wait()

    def _suspension_changed(self) -> None:
        self._say_suspended()
        for batch in self._buffer:
            self._lend(batch)

    def _lend(self, batch: ReceivedBatch) -> None:
        """Return the credit of a buffered batch of a suspended queue, so that other queues can use it."""
        lends = batch.queue in self._suspension.queues
        if lends and id(batch) not in self._lent:
            self._lent.add(id(batch))
            self._free(len(batch), batch.size_bytes)
        elif not lends and id(batch) in self._lent:
            self._lent.discard(id(batch))
            self._free(-len(batch), -batch.size_bytes)

    def subscribe(self, subscriptions: Sequence[consumer_pb2.Subscription]) -> None:
        """Change the subscriptions of this session and later ones."""
        if self._retries is not None:
            subscriptions = [*subscriptions, self._retries]
        del self._opening.subscriptions[:]
        self._opening.subscriptions.extend(subscriptions)
        self._say(subscribe=consumer_pb2.Subscribe(subscriptions=subscriptions))

    def want_retries(self) -> None:
        """Subscribe to the group's retry topic."""
        if self._retries is None:
            wanted = list(self._opening.subscriptions)
            self._retries = subscription(RETRY_PREFIX + self._opening.group, "*")
            self.subscribe(wanted)

    def report(self) -> None:
        """Acknowledge new progress, and return the credit of finished messages."""
        if self._conversation is None:
            return
        news = {
            queue: offset
            for queue, progress in self._progress.items()
            if (offset := progress.to_acknowledge()) is not None
        }
        if news:
            offsets = [
                consumer_pb2.AcknowledgedOffset(queue=wire_queue(queue), offset=offset, generation=self._generation)
                for queue, offset in news.items()
            ]
            self._say(acknowledge=consumer_pb2.Acknowledge(offsets=offsets))
            if self._broadcast is not None:
                for queue, offset in news.items():  # smaller than before if a queue was reset
                    self._broadcast.table.update(queue, offset)
        if self._freed_messages >= 0 and self._freed_bytes >= 0 and (self._freed_messages or self._freed_bytes):
            self._grant(self._freed_messages, self._freed_bytes)

    async def leave(self) -> None:
        """Acknowledge finished messages and leave the group, gracefully if the snode answers soon."""
        self.report()
        self.failure = self.failure or Left(f"this consumer has left {self._opening.group!r}; make a new one")
        try:
            await self._leave()
        finally:
            self._arrived.set()

    # the session

    async def _prepare(self) -> bool:
        return self._broadcast is None or await self._is_placed(self._broadcast)

    def _begin(self) -> None:
        self._say(open=self._opening)
        if self._suspension:
            self._say_suspended()
        self._grant(self._messages_max, self._bytes_max)

    def _refused(self, error: OrtooError) -> bool:
        self.failure = error
        self._arrived.set()
        return True

    def _forget(self) -> None:
        """Drop delivered and unacknowledged messages; the next session delivers them again."""
        self.queues = ()
        self._progress.clear()
        self._buffer.clear()
        self._lent.clear()

    async def _is_placed(self, offsets: LocalOffsets) -> bool:
        """Load the start offset of each queue; False if that failed and must be retried.

        A queue without an offset gets one now, so that later messages are not missed.
        """
        topics = [it.topic for it in self._opening.subscriptions]
        try:
            await offsets.persist()
            queues = [queue for topic in topics for queue in await readable_queues(self._connection, topic)]
            starts = await start_offsets(self._connection, offsets, queues, self._rule)
            for queue, offset in starts.items():
                offsets.table.update(queue, offset)
            await offsets.persist()
        except OrtooError as error:
            if not error.retriable:
                self._is_leaving = self._refused(error)
            _log.emit(log_events.BROADCAST_OFFSET_UNKNOWN, reason=str(error))
            return False
        del self._opening.start_offsets[:]
        self._opening.start_offsets.extend(
            consumer_pb2.QueueStart(queue=wire_queue(queue), offset=offset) for queue, offset in starts.items()
        )
        return True

    def _grant(self, messages: int, size_bytes: int) -> None:
        """Grant credit to the server; it includes what was freed so far."""
        self._say(credit=consumer_pb2.Credit(messages=messages, bytes=size_bytes))
        self._freed_messages = self._freed_bytes = 0

    def _say_suspended(self) -> None:
        """Send the suspended queues; the request replaces the previous one."""
        queues = map(wire_queue, self._suspension.queues)
        self._say(suspend=consumer_pb2.Suspend(everything=self._suspension.everything, queues=queues))

    # called with responses

    def _hear(self, bulky: Bulky) -> bool:
        response, (records,) = bulky
        kind = response.WhichOneof("event")
        if kind == "delivery":
            self._delivered(response.delivery, records, queue_of(response.delivery.queue))
        elif kind == "assignment":
            self._assigned(response.assignment.generation, list(map(queue_of, response.assignment.queues)))
        return self._heard(response)

    def _assigned(self, generation: int, queues: Sequence[Queue]) -> None:
        """Set the queues of the session; drops buffered batches of others, which their new owner gets."""
        self._generation = generation
        self.queues = tuple(queues)
        kept = frozenset(queues)
        gone = [self._progress.pop(queue) for queue in list(self._progress) if queue not in kept]
        messages, size_bytes = sum(it.messages for it in gone), sum(it.size_bytes for it in gone)
        for batch in self._buffer:
            if batch.queue not in kept and id(batch) in self._lent:
                self._lent.discard(id(batch))
                messages, size_bytes = messages - len(batch), size_bytes - batch.size_bytes
        self._buffer = deque(batch for batch in self._buffer if batch.queue in kept)
        if messages or size_bytes:
            self._free(messages, size_bytes)
        if self._suspension.end_holds(kept):
            self._suspension_changed()

    def _delivered(self, delivery: consumer_pb2.Delivery, records: bytes, queue: Queue) -> None:
        """Handle a batch, or an offset that advanced without one."""
        progress = self._progress.setdefault(queue, QueueProgress())
        if not delivery.HasField("batch"):
            if delivery.HasField("failure"):
                reason = delivery.failure.message
                self.losses.add(LostMessages(queue, delivery.first_offset, delivery.next_offset, reason))
            progress.deliver(BatchProgress([], delivery.next_offset))
            self.has_news.set()
            return
        batch = received_batch(
            delivery,
            queue,
            records,
            generation=delivery.generation,
            finished=self._finished,
            current=lambda: self._progress.get(queue) is progress,
        )
        progress.deliver(batch.progress)
        self._buffer.append(batch)
        if self._suspension:
            self._lend(batch)
        self._arrived.set()

    def _finished(self, batch: ReceivedBatch, count: int) -> None:
        if not batch.is_current:
            return  # its credit was returned when the queue or the session ended
        self._free(count, self._progress[batch.queue].finished(batch.progress, count))

    def _free(self, messages: int, size_bytes: int) -> None:
        self._freed_messages += messages
        self._freed_bytes += size_bytes
        self.has_news.set()
        if self._freed_messages * 4 >= self._messages_max or self._freed_bytes * 4 >= self._bytes_max:
            self.report()

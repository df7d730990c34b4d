"""A push consumer's place in its group: one session after another, what they delivered, and what is done of it."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from ortoo.client import log_events
from ortoo.client.core.closed import Left
from ortoo.client.core.connection import Connection
from ortoo.client.core.kept_session import KeptSession
from ortoo.client.core.place import RETRY_PREFIX, Queue
from ortoo.client.core.progress import BatchProgress, QueueProgress
from ortoo.client.core.received import ReceivedBatch
from ortoo.client.core.suspension import Hold, Suspension
from ortoo.client.core.wire import queue_of, received_batch, subscription, wire_queue
from ortoo.client.offsets.losses import Losses, LostMessages
from ortoo.client.offsets.queue_starts import start_offsets
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
    """Hears a session's events, keeps what was delivered until it is taken, and gives credit back for what is done."""

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
        """Join as `opening` says; at most so many delivered messages and bytes wait to be acknowledged.

        Of a `broadcast` the offsets are kept there, and a queue that has none begins by `rule`.
        """
        super().__init__(connection, bulk_calls.push, consumer_pb2.PushRequest)
        self.queues: tuple[Queue, ...] = ()
        self.failure: OrtooError | None = Left(
            f"this consumer is not in {opening.group!r} yet; enter it with `async with`"
        )
        """Why there is no session, and will be none."""
        self.losses = losses
        self.has_news = asyncio.Event()
        """Set when there is something that `report` would say."""
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
        """The group's retry topic, when it is wanted."""
        self._lent: set[int] = set()
        """Batches (by id) of suspended queues in the buffer, whose credit the others have meanwhile."""

    def enter(self) -> None:
        """There will be a session."""
        self.failure = None

    def check(self) -> None:
        """Errors: why there is no session."""
        if self.failure is not None:
            raise self.failure

    async def next_batch(self) -> ReceivedBatch:
        """The next batch in the order of arrival. Errors: why it was refused; Left."""
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
        """Take nothing from these queues, or from any when none is named; they stay this member's."""
        self._suspension.suspend(queues)
        self._suspension_changed()

    def resume(self, queues: Collection[Queue]) -> None:
        """Go on with these queues, or with everything when none is named."""
        self._suspension.resume(queues)
        self._suspension_changed()
        self._arrived.set()

    def hold(self, queue: Queue) -> Hold:
        """Take nothing more from a queue whose order is kept, until it is released or goes."""
        hold = self._suspension.hold(queue)
        self._suspension_changed()
        return hold

    def release(self, hold: Hold) -> None:
        """One reason less to hold a queue."""
        self._suspension.release(hold)
        self._suspension_changed()
        self._arrived.set()

    @property
    def is_suspended(self) -> bool:
        """Whether everything is."""
        return self._suspension.everything

    async def until_resumed(self) -> None:
        """Wait while everything is suspended and the member has not left."""
        while self._suspension.everything and self.failure is None and not self._is_leaving:
            self._arrived.clear()
            await self._arrived.wait()

    def _suspension_changed(self) -> None:
        self._say_suspended()
        for batch in self._buffer:
            self._lend(batch)

    def _lend(self, batch: ReceivedBatch) -> None:
        """What lies here of a single suspended queue must not keep the others from their credit."""
        lends = batch.queue in self._suspension.queues
        if lends and id(batch) not in self._lent:
            self._lent.add(id(batch))
            self._free(len(batch), batch.size_bytes)
        elif not lends and id(batch) in self._lent:
            self._lent.discard(id(batch))
            self._free(-len(batch), -batch.size_bytes)

    def subscribe(self, subscriptions: Sequence[consumer_pb2.Subscription]) -> None:
        """Want something else from now on, in this session and those after it."""
        if self._retries is not None:
            subscriptions = [*subscriptions, self._retries]
        del self._opening.subscriptions[:]
        self._opening.subscriptions.extend(subscriptions)
        self._say(subscribe=consumer_pb2.Subscribe(subscriptions=subscriptions))

    def want_retries(self) -> None:
        """Take part in what the group gave back, as soon as there is any."""
        if self._retries is None:
            wanted = list(self._opening.subscriptions)
            self._retries = subscription(RETRY_PREFIX + self._opening.group, "*")
            self.subscribe(wanted)

    def report(self) -> None:
        """Acknowledge what is new, and give the credit of finished messages back."""
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
                for queue, offset in news.items():  # less than before where a queue began anew
                    self._broadcast.table.update(queue, offset)
        if self._freed_messages >= 0 and self._freed_bytes >= 0 and (self._freed_messages or self._freed_bytes):
            self._grant(self._freed_messages, self._freed_bytes)

    async def leave(self) -> None:
        """Acknowledge what is done and leave the group, in good order if the snode answers soon."""
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
        """What was delivered and not acknowledged comes again."""
        self.queues = ()
        self._progress.clear()
        self._buffer.clear()
        self._lent.clear()

    async def _is_placed(self, offsets: LocalOffsets) -> bool:
        """Whether it is known where each queue goes on; otherwise look again, unless it is over.

        A queue without an offset gets one now, so that nothing is missed later.
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
        """Let the server send so much more; what was freed until now is in it."""
        self._say(credit=consumer_pb2.Credit(messages=messages, bytes=size_bytes))
        self._freed_messages = self._freed_bytes = 0

    def _say_suspended(self) -> None:
        """Take nothing of these queues, or of any; what was said before counts no more."""
        queues = map(wire_queue, self._suspension.queues)
        self._say(suspend=consumer_pb2.Suspend(everything=self._suspension.everything, queues=queues))

    # what the server says

    def _hear(self, bulky: Bulky) -> bool:
        response, (records,) = bulky
        kind = response.WhichOneof("event")
        if kind == "delivery":
            self._delivered(response.delivery, records, queue_of(response.delivery.queue))
        elif kind == "assignment":
            self._assigned(response.assignment.generation, list(map(queue_of, response.assignment.queues)))
        return self._heard(response)

    def _assigned(self, generation: int, queues: Sequence[Queue]) -> None:
        """These are the session's queues now; what was buffered of others is dropped, its new owner gets it."""
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
        """A batch with these bytes came, or an offset moved on."""
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
            return  # its credit came back when its queue went, or the session did
        self._free(count, self._progress[batch.queue].finished(batch.progress, count))

    def _free(self, messages: int, size_bytes: int) -> None:
        self._freed_messages += messages
        self._freed_bytes += size_bytes
        self.has_news.set()
        if self._freed_messages * 4 >= self._messages_max or self._freed_bytes * 4 >= self._bytes_max:
            self.report()

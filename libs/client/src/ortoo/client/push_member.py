"""A push consumer's place in its group: one session after another, what they delivered, and what is done of it."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial

from ortoo.client.broadcast_offsets import BroadcastOffsets
from ortoo.client.connection import Connection
from ortoo.client.losses import Losses, LostMessages
from ortoo.client.place import Queue
from ortoo.client.progress import BatchProgress, QueueProgress
from ortoo.client.push_call import Acknowledgement, PushCall, received_batch, wire_queue
from ortoo.client.received import ReceivedBatch
from ortoo.client.suspension import Suspension
from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger
from ortoo.v1 import consumer_pb2

LEAVE_TIMEOUT_S = 5.0
_log = get_logger("consumer")


class PushMember:
    """Hears a session's events, keeps what was delivered until it is taken, and gives credit back for what is done."""

    def __init__(
        self,
        connection: Connection,
        opening: consumer_pb2.OpenSession,
        losses: Losses,
        *,
        messages_max: int,
        bytes_max: int,
        broadcast: BroadcastOffsets | None = None,
    ) -> None:
        """Join as `opening` says; at most so many delivered messages and bytes wait to be acknowledged."""
        self.queues: tuple[Queue, ...] = ()
        self.failure: OrtooError | None = None
        """Why there will be no further session."""
        self.leaving = False
        self.losses = losses
        self.has_news = asyncio.Event()
        """Set when there is something that `report` would say."""
        self._connection = connection
        self._opening = opening
        self._broadcast = broadcast
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._call: PushCall | None = None
        self._generation = 0
        self._progress: dict[Queue, QueueProgress] = {}
        self._buffer: deque[ReceivedBatch] = deque()
        self._arrived = asyncio.Event()
        self._freed_messages = 0
        self._freed_bytes = 0
        self._left = asyncio.Event()
        self._session_number = 0
        self._suspension = Suspension()
        self._lent: set[int] = set()
        """Batches (by id) of suspended queues in the buffer, whose credit the others have meanwhile."""

    async def next_batch(self) -> ReceivedBatch | None:
        """The next batch in the order of arrival; None after the member has left. Errors: why it was refused."""
        while (batch := self._take()) is None:
            if self.failure is not None:
                raise self.failure
            if self.leaving:
                return None
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

    @property
    def is_suspended(self) -> bool:
        """Whether everything is."""
        return self._suspension.everything

    async def until_resumed(self) -> None:
        """Wait while everything is suspended and the member has not left."""
        while self._suspension.everything and self.failure is None and not self.leaving:
            self._arrived.clear()
            await self._arrived.wait()

    def _suspension_changed(self) -> None:
        if self._call is not None:
            self._call.suspend(self._suspension.queues, everything=self._suspension.everything)
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
        del self._opening.subscriptions[:]
        self._opening.subscriptions.extend(subscriptions)
        if self._call is not None:
            self._call.subscribe(subscriptions)

    def report(self) -> None:
        """Acknowledge what is new, and give the credit of finished messages back."""
        call = self._call
        if call is None:
            return
        news = [
            Acknowledgement(queue, offset, self._generation)
            for queue, progress in self._progress.items()
            if (offset := progress.to_acknowledge()) is not None
        ]
        if news:
            call.acknowledge(news)
            if self._broadcast is not None:
                for item in news:
                    self._broadcast.done(item.queue, item.offset)
        if self._freed_messages >= 0 and self._freed_bytes >= 0 and (self._freed_messages or self._freed_bytes):
            call.grant(self._freed_messages, self._freed_bytes)
            self._freed_messages = self._freed_bytes = 0

    async def keep_session(self) -> None:
        """Have a session until `leave`; after a break another one, at the next snode."""
        connection = self._connection
        attempt = 0
        while not self.leaving:
            address = connection.address
            if self._broadcast is not None and not await self._is_placed(self._broadcast):
                attempt += 1
                await connection.clock.sleep(connection.backoff.delay_s(attempt, connection.randomness))
                continue
            self._session_number += 1
            call = self._call = PushCall(connection.channel(), address, self, clock=connection.clock)
            self._freed_messages = self._freed_bytes = 0
            call.open(self._opening)
            if self._suspension:
                call.suspend(self._suspension.queues, everything=self._suspension.everything)
            call.grant(self._messages_max, self._bytes_max)
            try:
                closed = await call.run()
                _log.info("the session is closed", reason=closed.message)
            except OrtooError as error:
                if not error.retriable:
                    self.failure = error
                    self._arrived.set()
                    break
                _log.warning("the session broke; opening another", reason=str(error))
            finally:
                self._call = None
                self._forget_session()
            if self.leaving:
                break
            connection.failed(address)
            attempt = 0 if call.is_opened else attempt + 1
            await connection.clock.sleep(connection.backoff.delay_s(attempt, connection.randomness))
        self._left.set()

    async def leave(self) -> None:
        """Acknowledge what is done and leave the group, in good order if the snode answers soon."""
        self.leaving = True
        if self._call is not None and not self._left.is_set():
            self.report()
            self._call.leave()
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._left.wait()
            except TimeoutError:
                _log.warning("the snode did not say goodbye", address=self._connection.address)
        self._arrived.set()

    async def _is_placed(self, offsets: BroadcastOffsets) -> bool:
        """Whether it is known where each queue goes on; otherwise look again, unless it is over."""
        try:
            starts = await offsets.starts([it.topic for it in self._opening.subscriptions])
        except OrtooError as error:
            if not error.retriable:
                self.failure, self.leaving = error, True
                self._arrived.set()
            _log.warning("it is not known where a broadcast goes on", reason=str(error))
            return False
        del self._opening.start_offsets[:]
        self._opening.start_offsets.extend(
            consumer_pb2.QueueStart(queue=wire_queue(queue), offset=offset) for queue, offset in starts.items()
        )
        return True

    # what the server says

    def assigned(self, generation: int, queues: Sequence[Queue]) -> None:
        """These are the session's queues now; what was buffered of others is dropped, its new owner gets it."""
        self._generation = generation
        self.queues = tuple(queues)
        kept = frozenset(queues)
        for queue in [queue for queue in self._progress if queue not in kept]:
            del self._progress[queue]
        dropped = [batch for batch in self._buffer if batch.queue not in kept]
        if dropped:
            self._buffer = deque(batch for batch in self._buffer if batch.queue in kept)
            for batch in dropped:
                if id(batch) in self._lent:
                    self._lent.discard(id(batch))
                else:
                    self._free(len(batch), batch.size_bytes)

    def delivered(self, delivery: consumer_pb2.Delivery, records: bytes, queue: Queue) -> None:
        """A batch with these bytes came, or an offset moved on."""
        progress = self._progress.setdefault(queue, QueueProgress())
        if not delivery.HasField("batch"):
            if delivery.HasField("failure"):
                reason = delivery.failure.message
                self.losses.add(LostMessages(queue, delivery.first_offset, delivery.next_offset, reason))
            progress.deliver(BatchProgress([], delivery.next_offset))
            self.has_news.set()
            return
        finished = partial(self._finished, self._session_number)
        batch = received_batch(delivery, records, queue, generation=delivery.generation, finished=finished)
        progress.deliver(batch.progress)
        self._buffer.append(batch)
        if self._suspension:
            self._lend(batch)
        self._arrived.set()

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """These offsets are durable."""

    def _finished(self, session_number: int, batch: ReceivedBatch, count: int) -> None:
        # Credit is given back by the batch: the bytes of one are in memory until its last message is done.
        if session_number != self._session_number:
            return  # that session is over; the credit of this one was given anew
        self._free(count, batch.size_bytes if batch.progress.is_finished else 0)

    def _free(self, messages: int, size_bytes: int) -> None:
        self._freed_messages += messages
        self._freed_bytes += size_bytes
        self.has_news.set()
        if self._freed_messages * 4 >= self._messages_max or self._freed_bytes * 4 >= self._bytes_max:
            self.report()

    def _forget_session(self) -> None:
        """Drop what a lost session delivered: what was not acknowledged comes again."""
        self.queues = ()
        self._progress.clear()
        self._buffer.clear()
        self._lent.clear()

"""The push consumer: a member of a group that gets whole batches and says what it has processed."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ortoo.client.connection import Connection
from ortoo.client.filters import Filter
from ortoo.client.place import Queue
from ortoo.client.progress import BatchProgress, QueueProgress
from ortoo.client.push_call import Acknowledgement, PushCall, opening, received_batch
from ortoo.client.received import ReceivedBatch, ReceivedMessage
from ortoo.common.background import Background
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.logs import get_logger
from ortoo.v1 import consumer_pb2

Handler = Callable[[ReceivedMessage], Awaitable[None]]
LEAVE_TIMEOUT_S = 5.0
_log = get_logger("consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How much a consumer takes at once, and how often it says what is done."""

    from_first: bool = False
    """Where the group starts in a queue for which it has no offset: the oldest message, or what comes from now on."""
    unfinished_messages_max: int = 32_768
    """How many delivered messages may wait to be acknowledged. A batch comes whole, so it may be one batch more."""
    unfinished_bytes_max: int = 32 << 20
    ack_interval_ms: float = 100.0
    retry_delay_ms: float = 1_000.0
    """How long `run` waits before it gives a message whose handler failed to the handler again."""
    client_id: str = ""
    """The consumer's name for people; empty = made of host and process."""


class Consumer:
    """One member of a group. Made by `Client.consumer`; an async context manager that leaves the group at its end.

    Read whole batches with `batches()` (fast), or messages with `async for`, and call `ack()` on what is processed.
    What was not acknowledged comes again, to this member or another, when a session ends.
    """

    def __init__(
        self, connection: Connection, group: str, topics: Mapping[str, Filter], settings: ConsumerSettings
    ) -> None:
        """`Client.consumer` is the way in."""
        if not topics:
            raise Invalid("no topic; name at least one", field="topics")
        self.queues: tuple[Queue, ...] = ()
        """The queues this member has now."""
        self._connection = connection
        self._clock = connection.clock
        self._settings = settings
        client_id = settings.client_id or f"{socket.gethostname()}-{os.getpid()}-{connection.randomness.id_text()[:6]}"
        self._opening = opening(
            group, client_id, sorted(topics.items(), key=lambda item: item[0]), from_first=settings.from_first
        )
        self._background = Background(f"consumer {group}")
        self._call: PushCall | None = None
        self._generation = 0
        self._progress: dict[Queue, QueueProgress] = {}
        self._buffer: deque[ReceivedBatch] = deque()
        self._arrived = asyncio.Event()
        self._freed_messages = 0
        self._freed_bytes = 0
        self._leaving = False
        self._left = asyncio.Event()
        self._failure: OrtooError | None = None

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        self._background.spawn("session", self._keep_session())
        self._background.every("acks", self._settings.ack_interval_ms / 1000, self._say_progress, clock=self._clock)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leaving = True
        if self._call is not None and not self._left.is_set():
            await self._say_progress()
            self._call.leave()
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._left.wait()
            except TimeoutError:
                _log.warning("the snode did not say goodbye", address=self._connection.address)
        self._arrived.set()
        await self._background.__aexit__(kind, error, traceback)

    async def batches(self) -> AsyncIterator[ReceivedBatch]:
        """Whole batches, in order within each queue. Errors: what the server refused the session with."""
        while True:
            while self._buffer:
                yield self._buffer.popleft()
            if self._failure is not None:
                raise self._failure
            if self._leaving:
                return
            self._arrived.clear()
            await self._arrived.wait()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        async for batch in self.batches():
            for message in batch:
                yield message

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Give each message to `handler`, up to `concurrency` at a time, and acknowledge it when the handler returns.

        A message whose handler raises is given to it again after `retry_delay_ms`; until then it is not acknowledged.
        Runs until cancelled, or until the session is refused.
        """
        slots = asyncio.Semaphore(concurrency)

        async def handle(message: ReceivedMessage) -> None:
            try:
                while True:
                    try:
                        await handler(message)
                        break
                    except Exception:
                        _log.exception("a handler failed; the message will be given to it again", offset=message.offset)
                        await self._clock.sleep(self._settings.retry_delay_ms / 1000)
                message.ack()
            finally:
                slots.release()

        async with Background("handlers") as background:
            async for message in self:
                await slots.acquire()
                background.spawn("handle", handle(message))

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
                self._free(len(batch), batch.size_bytes)

    def delivered(self, delivery: consumer_pb2.Delivery, queue: Queue) -> None:
        """A batch came, or an offset moved on."""
        progress = self._progress.setdefault(queue, QueueProgress())
        if not delivery.HasField("batch"):
            progress.deliver(BatchProgress([], delivery.next_offset))
            return
        batch = received_batch(delivery, queue, generation=delivery.generation, finished=self._finished)
        progress.deliver(batch.progress)
        self._buffer.append(batch)
        self._arrived.set()

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """These offsets are durable."""

    # what we say

    def _finished(self, batch: ReceivedBatch, count: int) -> None:
        # Credit is given back by the batch: the bytes of one are in memory until its last message is done.
        self._free(count, batch.size_bytes if batch.progress.is_finished else 0)

    def _free(self, messages: int, size_bytes: int) -> None:
        self._freed_messages += messages
        self._freed_bytes += size_bytes
        settings = self._settings
        if (
            self._freed_messages * 4 >= settings.unfinished_messages_max
            or self._freed_bytes * 4 >= settings.unfinished_bytes_max
        ):
            self._report()

    async def _say_progress(self) -> None:
        self._report()

    def _report(self) -> None:
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
        if self._freed_messages or self._freed_bytes:
            call.grant(self._freed_messages, self._freed_bytes)
            self._freed_messages = self._freed_bytes = 0

    async def _keep_session(self) -> None:
        """Have a session as long as this consumer lives; after a break another one, at the next snode."""
        attempt = 0
        while not self._leaving:
            address = self._connection.address
            call = self._call = PushCall(self._connection.channel(), address, self, clock=self._clock)
            self._freed_messages = self._freed_bytes = 0
            call.grant(self._settings.unfinished_messages_max, self._settings.unfinished_bytes_max)
            began_s = self._clock.monotonic_s()
            try:
                closed = await call.run(self._opening)
                _log.info("the session is closed", reason=closed.message)
            except OrtooError as error:
                if not error.retriable:
                    self._failure = error
                    self._arrived.set()
                    break
                _log.warning("the session broke; opening another", reason=str(error))
            finally:
                self._call = None
                self._forget_session()
            if self._leaving:
                break
            self._connection.failed(address)
            attempt = 0 if self._clock.monotonic_s() - began_s > 5 else attempt + 1
            await self._clock.sleep(self._connection.backoff.delay_s(attempt, self._connection.randomness))
        self._left.set()

    def _forget_session(self) -> None:
        """Drop what a lost session delivered: what was not acknowledged comes again."""
        self.queues = ()
        self._progress.clear()
        self._buffer.clear()

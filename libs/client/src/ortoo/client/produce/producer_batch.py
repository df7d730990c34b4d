"""A batch in flight, with one future for all its messages."""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ortoo.client.core.queues import Queue, Receipt
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.groups.handle import DelayedBatch, Handle, HandleKind
from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID
from ortoo.common.records.batch import encode
from ortoo.common.records.columns import DELIVER_AT
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import Message, message_of
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.view import open_batch


@dataclass(eq=False, slots=True)
class ProducerBatch:
    """One batch from its first message to its answer."""

    queue: Queue
    topic_id: int
    future: "asyncio.Future[None]"
    """Done when the batch is stored or has failed."""
    deadline_s: float
    """It fails if it is not answered by this time of the monotonic clock."""
    unreported: "UnreportedErrors" = field(default_factory=lambda: UnreportedErrors())
    """Failures that were not reported to the application yet."""
    is_numbered: bool = False
    is_pinned: bool = False
    """Whether it must go to this queue, because of the group or priority of a message."""
    is_ambiguous: bool = False
    """Whether it may be stored already, because the outcome of an attempt is unknown."""
    first_offset: int = -1
    stored_at_ms: int = 0
    recall_seal: bytes = b""
    """The data for recall handles of a delayed batch."""
    rejected: dict[int, OrtooError] = field(default_factory=dict)
    """Messages that exceeded a limit or could not be encoded and were left out, by row."""
    _sealed: SealedBatch | None = None
    _waiters: "dict[asyncio.Future[None], None]" = field(default_factory=dict)

    @property
    def sealed(self) -> SealedBatch:
        """The sealed batch."""
        assert self._sealed is not None, "not sealed yet"
        return self._sealed

    def seal(self, sealed: SealedBatch) -> None:
        """Set the sealed batch, which is already encoded."""
        self._sealed = sealed

    def encode(
        self, messages: Sequence[Message | bytes], sizes: Sequence[int] = (), *, now_ms: int, codec: Codec
    ) -> bool:
        """Encode the messages that keep every limit; returns False if there are no such messages.

        Messages are checked together, and one by one only after a failure. `sizes` are those of `records.batch.encode`.
        """
        try:
            self._sealed = encode(messages, sizes, now_ms=now_ms, codec=codec)
        except OrtooError:
            good = {}
            for row, message in enumerate(messages):
                try:
                    message_of(message).check()
                    encode((message,), now_ms=now_ms)
                    good[row] = message
                except Invalid as error:
                    self._reject(row, error)
            try:
                self._sealed = encode(list(good.values()), now_ms=now_ms, codec=codec) if good else None
            except OrtooError as error:  # of all messages together, such as a missing library
                for row in good:
                    self._reject(row, error)
        return self._sealed is not None

    def _reject(self, row: int, error: OrtooError) -> None:
        self.rejected[row] = error
        self.unreported.add(self, row, error)

    def number(self, producer_id: int, first_sequence: int) -> None:
        """Set the producer id and the sequence, by which the enode recognises a retry."""
        self._sealed = replace(self.sealed, producer_id=producer_id, first_sequence=first_sequence)
        self.is_numbered = True

    def is_after(self, other: "ProducerBatch") -> bool:
        """Whether the enode accepts this batch only after `other`, by their sequences."""
        own, its = self.sealed, other.sealed
        return other.is_numbered and its.producer_id == own.producer_id and its.first_sequence < own.first_sequence

    def reset_number(self) -> None:
        """Mark the batch as certainly not stored under its sequence, so that it gets a new sequence."""
        self.is_numbered = False

    @property
    def can_reroute(self) -> bool:
        """Whether the batch may go to another queue after it was refused."""
        return not (self.is_pinned or self.is_ambiguous)

    def send_future(self, row: int, message_id: str | None = None) -> "SendFuture":
        """The future of the message at `row`; `message_id` is the id that its producer chose."""
        future = SendFuture()  # a constructor would take twice the time, for each message
        future._batch = self
        future._row = row
        future._message_id = message_id
        return future

    def complete(self, first_offset: int, stored_at_ms: int) -> None:
        """Complete the batch as stored, and wake all waiters."""
        self.first_offset = first_offset
        self.stored_at_ms = stored_at_ms
        if not self.future.done():
            self.future.set_result(None)
            self._wake()

    def fail(self, error: OrtooError) -> None:
        """Complete the batch as failed, and wake all waiters.

        If an earlier attempt may have stored the batch, the outcome is reported as unknown.
        """
        if not self.future.done():
            if self.is_ambiguous and not isinstance(error, Unavailable):
                error = Unavailable(f"{error}; an earlier attempt may have been stored, the outcome is unknown")
            self.unreported.add(self, ALL_ROWS, error)
            self.future.set_exception(error)
            self.future.exception()  # marks it as retrieved; without a waiter `flush` reports it
            self._wake()

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until the batch is stored or has failed; the cancellation of one waiter does not affect others."""
        if self.future.done():
            return
        waiter = self.future.get_loop().create_future()
        self._waiters[waiter] = None
        try:
            yield from waiter
        finally:
            self._waiters.pop(waiter, None)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():  # cancelled in this turn of the loop
                waiter.set_result(None)


ALL_ROWS = -1
UNREPORTED_MAX = 1_000


class UnreportedErrors:
    """Failures that were not reported yet, at most UNREPORTED_MAX; `flush` reports them once."""

    def __init__(self) -> None:
        """Start empty."""
        self._errors: dict[tuple[ProducerBatch, int], OrtooError] = {}

    def add(self, batch: ProducerBatch, row: int, error: OrtooError) -> None:
        """Add a failure of the message at `row`; ALL_ROWS = of all messages of the batch."""
        if len(self._errors) < UNREPORTED_MAX:
            self._errors[batch, row] = error

    def mark_reported(self, batch: ProducerBatch, row: int) -> None:
        """Remove the failure of the message at `row`, because it is being reported."""
        self._errors.pop((batch, ALL_ROWS), None)
        self._errors.pop((batch, row), None)

    def raise_first(self) -> None:
        """Raise the first failure; all other failures then count as reported."""
        errors = list(self._errors.values())
        self._errors.clear()
        if errors:
            raise errors[0]


class SendFuture:
    """A message that a producer has taken; await it for the receipt. Made by `ProducerBatch.send_future`."""

    __slots__ = ("_batch", "_message_id", "_row")

    _batch: ProducerBatch
    _row: int
    _message_id: str | None

    @property
    def done(self) -> bool:
        """Whether the message has its outcome: stored or failed."""
        return self._batch.future.done()

    def __await__(self) -> Generator[Any, None, Receipt]:
        yield from self._batch.__await__()  # `asyncio.wait` is too slow for thousands of waiters
        return self.result()

    def result(self) -> Receipt:
        """The receipt of a message that is done. Errors: the error of the send."""
        batch = self._batch
        if batch.rejected or batch.future.exception() is not None:
            batch.unreported.mark_reported(batch, self._row)
        batch.future.result()
        if self._row in batch.rejected:
            raise batch.rejected[self._row]
        rejected_before = sum(row < self._row for row in batch.rejected) if batch.rejected else 0
        offset = batch.first_offset + self._row - rejected_before
        queue = batch.queue
        topic_id, queue_id, handle = batch.topic_id, queue.queue_id, ""
        if batch.sealed.delayed:
            due_ms = open_batch(batch.sealed).values(DELIVER_AT)[self._row - rejected_before]
            assert due_ms is not None, "all messages of a delayed batch have this time"
            whole = DelayedBatch(queue.enode, topic_id, queue_id, batch.first_offset, batch.sealed.count)
            waiting = Handle(HandleKind.DELAYED, queue.enode, topic_id, queue_id, offset, due_ms)
            handle = waiting.encoded_of_batch(whole, batch.recall_seal)
            topic_id, queue_id = DELAYED_TOPIC_ID, 0
        message_id = self._message_id or message_id_text(topic_id, queue.enode, queue_id, offset)
        return Receipt(message_id, queue, offset, batch.stored_at_ms, handle)

    @property
    def batch(self) -> ProducerBatch:
        """The batch of the message."""
        return self._batch

    @property
    def failure(self) -> BaseException | None:
        """The error of a message that is done. It stays unreported."""
        if self._batch.future.cancelled():
            return None
        return self._batch.future.exception() or self._batch.rejected.get(self._row)

    def following(self, messages: int) -> "SendFuture":
        """The future of the message `messages` rows after this message, in the same batch."""
        return self._batch.send_future(self._row + messages)

    async def wait_batch(self) -> None:
        """Wait until the whole batch is stored or has failed."""
        await self._batch


class SendFutures:
    """Many messages that a producer has taken, in order; await this object for all their receipts."""

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: Sequence[tuple[SendFuture, int]]) -> None:
        """Each run is the future of its first message, and the number of its consecutive messages in one batch."""
        self._count = sum(count for _, count in runs)
        self._runs = runs

    def __len__(self) -> int:
        return self._count

    def firsts(self) -> list[SendFuture]:
        """The future of the first message of each batch."""
        return [first for first, _ in self._runs]

    def __iter__(self) -> Iterator[SendFuture]:
        return (first.following(place) if place else first for first, count in self._runs for place in range(count))

    def __await__(self) -> Generator[Any, None, list[Receipt]]:
        return self._all().__await__()

    async def _all(self) -> list[Receipt]:
        for first, _ in self._runs:
            await first.wait_batch()
        return [sending.result() for sending in self]

"""Single messages of many clients to one queue: messages that arrive during an append form the next batch."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import as_ortoo_error
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.records.batch import BATCH_BYTES, EMPTY_BYTES, encode, encoded_bytes_bound
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX, SealedBatch
from ortoo.common.records.text_rules import REQUEST_LIMITS
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.link import AppendedBatch, EnodeLinks, explain_error
from ortoo.snode.enodes.serial_batcher import SerialBatcher
from ortoo.snode.send.ambiguous_outcome import AmbiguousOutcome


@dataclass(slots=True)
class _PendingMessages:
    messages: Sequence[Message]
    size_bytes: int
    stored: Callable[[int | OrtooError], None]
    may_reroute: bool
    """Whether the messages may move to another queue if the enode accepts no messages."""
    deadline_s: float = 0.0
    """The time at which the messages fail; set when they are first sent."""


@dataclass(slots=True, eq=False)
class PublishBatcher(SerialBatcher):
    """Stores single messages in one queue. Its producer id lets the enode store a batch that is sent twice only once.

    Invariant: the bytes of a batch do not change between two tries, so the enode recognizes the repetition. If the
    outcome of a batch stays unknown, the next batch gets a new producer id, because the old sequence cannot be
    continued.
    """

    queue: Queue
    topic_id: int
    links: EnodeLinks
    memory: MemoryShare
    clock: Clock
    randomness: Randomness
    timeout_s: float
    """Timeout of a message until it is durable."""
    waiting_bytes_max: int = 8 << 20
    batches_taken: int = field(default=0, init=False)
    """The number of batches so far. After each batch, the choice of a queue moves to the next queue."""
    _producer_id: int = field(init=False)
    _sequence: int = field(init=False)
    _waiting: deque[_PendingMessages] = field(default_factory=deque, init=False)
    _waiting_bytes: int = field(default=0, init=False)
    _single_count: int = field(default=0, init=False)
    """Number of requests to send separately, because the enode refused them in one batch."""

    def __post_init__(self) -> None:
        self._reset_producer_id()

    @property
    def is_idle(self) -> bool:
        """Whether no message is waiting or in flight."""
        return not self.is_draining and not self._waiting

    def put(
        self, messages: Sequence[Message], stored: Callable[[int | OrtooError], None], *, may_reroute: bool = False
    ) -> None:
        """Queue checked messages. `stored` gets the offset of the first message, or the error; it must not raise.

        With `may_reroute`, the error has NOT_ACCEPTED_FIELD as soon as the enode refuses messages, so that the caller
        can use another enode. Errors: Overloaded.
        """
        size_bytes = sum(map(encoded_bytes_bound, messages))
        if self._waiting and self._waiting_bytes + size_bytes > self.waiting_bytes_max:
            raise Overloaded(f"too many bytes wait for queue {self.queue}; send more slowly", retry_after_ms=100)
        self._waiting.append(_PendingMessages(messages, size_bytes, stored, may_reroute))
        self._waiting_bytes += size_bytes
        self.memory.draw_unchecked(size_bytes)  # the message stays also if its sender disconnects

    async def drain(self) -> None:
        """Send batches until no message waits."""
        while self._waiting:
            part = self._take_batch()
            try:
                messages = [message for item in part for message in item.messages]
                batch = encode(messages, now_ms=self.clock.now_ms(), limits=REQUEST_LIMITS)
                appended = await self._store(batch, part)
            except OrtooError as error:
                if error.field == NOT_ACCEPTED_FIELD and any(item.may_reroute for item in part):
                    now_s = self.clock.monotonic_s()
                    self._fail([item for item in part if item.may_reroute or item.deadline_s <= now_s], error)
                    self._requeue([item for item in part if not item.may_reroute and item.deadline_s > now_s])
                    continue
                if len(part) > 1 and not error.retriable:
                    self._retry_singly(part)
                    continue
                self._fail(part, error)
                if error.retriable:
                    # They have waited as long as the previous batch, and the enode is still unavailable.
                    late = Unavailable(
                        "the message waited behind an append that failed; retry", field=NOT_ACCEPTED_FIELD
                    )
                    self._fail(list(self._waiting), late)
                    self._waiting.clear()
                    self._waiting_bytes = self._single_count = 0
            except Exception as error:
                if len(part) > 1:
                    self._retry_singly(part)
                    continue
                self._fail(part, as_ortoo_error(error, "publish"))
            else:
                offset = appended.first_offset
                self.memory.release(sum(item.size_bytes for item in part))
                for item in part:
                    item.stored(offset)
                    offset += len(item.messages)
                if self._waiting:
                    await self.clock.sleep(0)  # callers that run in this turn of the loop can join the batch

    def _retry_singly(self, part: Sequence[_PendingMessages]) -> None:
        """Send requests that were refused together one by one, so that an invalid one fails alone."""
        self._requeue(part)
        self._single_count = len(part)

    def _reroute_waiting(self, error: OrtooError) -> None:
        """Fail the waiting messages that may use another enode, because this enode accepts no messages."""
        moving = [item for item in self._waiting if item.may_reroute]
        self._waiting = deque(item for item in self._waiting if not item.may_reroute)
        self._waiting_bytes -= sum(item.size_bytes for item in moving)
        self._fail(moving, error)

    def _requeue(self, part: Sequence[_PendingMessages]) -> None:
        """Put requests back at the front."""
        self._waiting.extendleft(reversed(part))
        self._waiting_bytes += sum(item.size_bytes for item in part)

    def _take_batch(self) -> list[_PendingMessages]:
        """Take the requests that fit into one batch. No request is split."""
        part: list[_PendingMessages] = []
        size, count = BATCH_BYTES, 0
        while self._waiting:
            item = self._waiting[0]
            count += len(item.messages)
            size += item.size_bytes + len(item.messages) * EMPTY_BYTES  # as if all were plain, and one more were not
            if part and (self._single_count or count > MESSAGES_MAX or size > RECORDS_BYTES_MAX):
                break
            part.append(self._waiting.popleft())
            self._waiting_bytes -= item.size_bytes
        self.batches_taken += 1
        self._single_count = max(0, self._single_count - 1)
        return part

    async def _store(self, batch: SealedBatch, part: Sequence[_PendingMessages]) -> AppendedBatch:
        """Append one batch. While its outcome is unknown and time is left, retry with the same bytes."""
        for item in part:
            item.deadline_s = item.deadline_s or self.clock.monotonic_s() + self.timeout_s
        deadline_s = min(item.deadline_s for item in part)
        outcome, may_reroute = AmbiguousOutcome(), any(item.may_reroute for item in part)
        backoff, attempt = Backoff(first_s=0.02, max_s=0.5), 0
        while True:
            stamped = replace(batch, producer_id=self._producer_id, first_sequence=self._sequence)
            try:
                appended = await self.links.to(self.queue.enode).append(self.topic_id, self.queue.queue_id, stamped)
            except OrtooError as error:
                is_forgotten = isinstance(error, NotFound) and error.field == "batch.producer_id"
                if is_forgotten and self._sequence and not outcome.is_ambiguous:
                    self._reset_producer_id()
                    continue
                reason = explain_error(error)
                delay_s = backoff.delay_s(attempt, self.randomness)
                late = self.clock.monotonic_s() + delay_s >= deadline_s
                if (
                    not reason.retriable
                    or late
                    or (reason.field == NOT_ACCEPTED_FIELD and may_reroute and not outcome.is_ambiguous)
                ):
                    self._reset_producer_id()
                    raise outcome.error_for_sender(reason) from None
                outcome.add_attempt(error)
                if reason.field == NOT_ACCEPTED_FIELD:
                    self._reroute_waiting(reason)
                await self.clock.sleep(delay_s)
                attempt += 1
            else:
                self._sequence += batch.count
                return appended

    def _reset_producer_id(self) -> None:
        self._producer_id, self._sequence = self.randomness.id64(), 0

    def _fail(self, items: Sequence[_PendingMessages], error: OrtooError) -> None:
        self.memory.release(sum(item.size_bytes for item in items))
        for item in items:
            item.stored(error)


class QueueChoice(NamedTuple):
    """The queue that was chosen for messages that may go to any queue of a topic."""

    topic: Topic
    at: int
    """Its number among the available queues."""
    batcher: PublishBatcher
    cut: int
    """The number of batches after which another queue is chosen."""
    enodes_version: int
    """The version of the directory's enodes."""

    @property
    def is_joined(self) -> bool:
        """Whether further messages join a batch of this queue, because an append is in flight there."""
        return not self.batcher.is_idle and self.batcher.batches_taken <= self.cut

"""Single messages of many clients to one queue: messages that arrive during an append form the next batch."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ortoo.common.errors import NOT_TAKEN_FIELD, NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import told_as
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.records.batch import encode, encoded_bytes_bound
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX, SealedBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.serial_batcher import Batcher
from ortoo.snode.enodes.link import Appended, EnodeLinks, explained
from ortoo.snode.send.ambiguous_outcome import Doubt

BATCH_BYTES = 1024
"""Fixed memory of a batch."""


@dataclass(slots=True)
class _Waiting:
    messages: Sequence[Message]
    size_bytes: int
    offset: asyncio.Future[int]
    may_move: bool
    """Whether they may move to another queue if the enode takes nothing."""
    deadline_s: float = 0.0
    """When they are given up, once they are in flight."""


@dataclass(slots=True, eq=False)
class PublishBatcher(Batcher):
    """Appends to one queue, with its own producer id, so that a batch sent twice is stored once.

    The bytes of a batch never change between two tries. If the outcome of a batch stays unknown, the next one gets a
    new producer id, because the old sequence cannot be continued.
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
    batches_cut: int = field(default=0, init=False)
    """Grows with each batch; then the choice of a queue moves to the next one."""
    _producer_id: int = field(init=False)
    _sequence: int = field(init=False)
    _waiting: deque[_Waiting] = field(default_factory=deque, init=False)
    _waiting_bytes: int = field(default=0, init=False)
    _apart: int = field(default=0, init=False)
    """Number of requests to send separately, because together they were refused."""

    def __post_init__(self) -> None:
        self._begin_anew()

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting or in flight."""
        return not self.draining and not self._waiting

    def put(self, messages: Sequence[Message], *, may_move: bool = False) -> asyncio.Future[int]:
        """Queue checked messages; the future gives the offset of the first one.

        With `may_move` it fails at once, with NOT_TAKEN_FIELD, if the enode takes nothing. Errors: Overloaded.
        """
        size_bytes = sum(map(encoded_bytes_bound, messages))
        if self._waiting and self._waiting_bytes + size_bytes > self.waiting_bytes_max:
            raise Overloaded(f"too many bytes wait for queue {self.queue}; slow down", retry_after_ms=100)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(messages, size_bytes, future, may_move))
        self._waiting_bytes += size_bytes
        self.memory.take(size_bytes)  # the message stays also if its sender disconnects
        return future

    async def drain(self) -> None:
        """Send until nothing waits."""
        while self._waiting:
            part = self._cut()
            try:
                batch = encode([message for item in part for message in item.messages], now_ms=self.clock.now_ms())
                appended = await self._store(batch, part)
            except OrtooError as error:
                if error.field == NOT_TAKEN_FIELD and any(item.may_move for item in part):
                    now_s = self.clock.monotonic_s()
                    self._fail([item for item in part if item.may_move or item.deadline_s <= now_s], error)
                    self._take_back([item for item in part if not item.may_move and item.deadline_s > now_s])
                    continue
                if len(part) > 1 and not error.retriable:
                    self._take_apart(part)
                    continue
                self._fail(part, error)
                if error.retriable:
                    # They have waited as long as the previous batch, and the enode is still unavailable.
                    late = Unavailable("it waited behind an append that failed; retry", field=NOT_TAKEN_FIELD)
                    self._fail(list(self._waiting), late)
                    self._waiting.clear()
                    self._waiting_bytes = self._apart = 0
            except Exception as error:
                if len(part) > 1:
                    self._take_apart(part)
                    continue
                self._fail(part, told_as(error, "publish"))
            else:
                offset = appended.first_offset
                self.memory.give_back(sum(item.size_bytes for item in part))
                for item in part:
                    if not item.offset.done():
                        item.offset.set_result(offset)
                    offset += len(item.messages)
                if self._waiting:
                    await self.clock.sleep(0)  # callers that run in this turn of the loop can join the batch

    def _take_apart(self, part: Sequence[_Waiting]) -> None:
        """Send requests that were refused together one by one, so that an invalid one fails alone."""
        self._take_back(part)
        self._apart = len(part)

    def _let_go(self, error: OrtooError) -> None:
        """The enode takes nothing: fail the waiting messages that may move, so that they move at once."""
        moving = [item for item in self._waiting if item.may_move]
        self._waiting = deque(item for item in self._waiting if not item.may_move)
        self._waiting_bytes -= sum(item.size_bytes for item in moving)
        self._fail(moving, error)

    def _take_back(self, part: Sequence[_Waiting]) -> None:
        """Put requests back at the front."""
        self._waiting.extendleft(reversed(part))
        self._waiting_bytes += sum(item.size_bytes for item in part)

    def _cut(self) -> list[_Waiting]:
        """Take the requests that fit into one batch; none is split."""
        part: list[_Waiting] = []
        size, count = BATCH_BYTES, 0
        while self._waiting:
            item = self._waiting[0]
            count += len(item.messages)
            size += item.size_bytes
            if part and (self._apart or count > MESSAGES_MAX or size > RECORDS_BYTES_MAX):
                break
            part.append(self._waiting.popleft())
            self._waiting_bytes -= item.size_bytes
        self.batches_cut += 1
        self._apart = max(0, self._apart - 1)
        return part

    async def _store(self, batch: SealedBatch, part: Sequence[_Waiting]) -> Appended:
        """Append one batch; retry with the same bytes while the outcome is unknown and there is time."""
        for item in part:
            item.deadline_s = item.deadline_s or self.clock.monotonic_s() + self.timeout_s
        deadline_s = min(item.deadline_s for item in part)
        doubt, may_move = Doubt(), any(item.may_move for item in part)
        backoff, attempt = Backoff(first_s=0.02, max_s=0.5), 0
        while True:
            stamped = replace(batch, producer_id=self._producer_id, first_sequence=self._sequence)
            try:
                appended = await self.links.to(self.queue.enode).append(self.topic_id, self.queue.queue_id, stamped)
            except OrtooError as error:
                is_forgotten = isinstance(error, NotFound) and error.field == "batch.producer_id"
                if is_forgotten and self._sequence and not doubt.is_open:
                    self._begin_anew()
                    continue
                reason = explained(error)
                delay_s = backoff.delay_s(attempt, self.randomness)
                late = self.clock.monotonic_s() + delay_s >= deadline_s
                if not reason.retriable or late or (reason.field == NOT_TAKEN_FIELD and may_move and not doubt.is_open):
                    self._begin_anew()
                    raise doubt.told(reason) from None
                doubt.tried(error)
                if reason.field == NOT_TAKEN_FIELD:
                    self._let_go(reason)
                await self.clock.sleep(delay_s)
                attempt += 1
            else:
                self._sequence += batch.count
                return appended

    def _begin_anew(self) -> None:
        self._producer_id, self._sequence = self.randomness.id64(), 0

    def _fail(self, items: Sequence[_Waiting], error: OrtooError) -> None:
        self.memory.give_back(sum(item.size_bytes for item in items))
        for item in items:
            if not item.offset.done():
                item.offset.set_exception(error)

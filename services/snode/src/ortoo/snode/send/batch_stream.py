"""One producer's stream of batches: checked, forwarded unchanged, answered in order within each queue."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ortoo.common.arrays.batch_check import check
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.errors import Internal, OrtooError
from ortoo.common.errors.status import status_of
from ortoo.common.groups.handle import DelayedBatch
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import DirectoryCache, check_writable
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import AppendedBatch, EnodeLinks, FlushMode, explain_error
from ortoo.snode.topics.creation import ProducerTopics

_log = get_logger("produce")


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The result of one batch: its location if it was stored, or the error."""

    request_id: int
    appended: AppendedBatch | None
    error: OrtooError | None
    recall_seal: bytes = b""
    """The seal for the recall handles of a stored delayed batch."""


@dataclass(slots=True)
class _PendingBatch:
    request_id: int
    size_bytes: int
    """0 = the batch was refused and its memory is released."""
    future: asyncio.Future[AppendedBatch]
    arrived_s: float
    topic_id: int = 0
    delayed_count: int = 0


def with_delayed_flag(batch: OpenedBatch) -> SealedBatch:
    """The sealed batch, with `delayed` in its envelope set if its messages have a delivery time."""
    delayed = batch.deliver_at_ms is not None
    return batch.sealed if batch.sealed.delayed == delayed else replace(batch.sealed, delayed=delayed)


@dataclass(slots=True, eq=False)
class ProduceStream:
    """The batches of one Produce call, many of them in flight. `submit` waits while the limit of batches is reached."""

    directory: DirectoryCache
    topics: ProducerTopics
    links: EnodeLinks
    memory: MemoryShare
    """The memory from which batches in flight are drawn."""
    clock: Clock
    on_answered: Callable[[str, float], object] = lambda status, latency_s: None
    """Called with the gRPC status of each batch and the time from its arrival to its answer, in s."""
    bytes_max: int = 16 << 20
    batches_max: int = 1_024
    _by_queue: defaultdict[Queue, deque[_PendingBatch]] = field(default_factory=lambda: defaultdict(deque), init=False)
    _bytes: int = field(default=0, init=False)
    _batches: int = field(default=0, init=False)
    _results: deque[tuple[ProduceResult, int]] = field(default_factory=deque, init=False)
    _ended: bool = field(default=False, init=False)
    _error: OrtooError | None = field(default=None, init=False)
    _has_results: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _has_room: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def submit(
        self,
        request_id: int,
        queue: Queue,
        batch: SealedBatch,
        flush_mode: FlushMode,
        refusal: OrtooError | None = None,
    ) -> None:
        """Wait for space, and send one batch. Every error becomes the batch's answer; `refusal` is such an error."""
        while self._batches and (
            self._bytes + len(batch.records) > self.bytes_max or self._batches >= self.batches_max
        ):
            self._has_room.clear()
            await self._has_room.wait()
        arrived_s = self.clock.monotonic_s()
        future: asyncio.Future[AppendedBatch]
        size_bytes = topic_id = delayed_count = 0
        try:
            if refusal is not None:
                raise refusal
            self.memory.draw(len(batch.records))
            size_bytes = len(batch.records)
            topic = self.directory.find_topic(queue.topic) or await self.topics.topic(queue.topic)
            check_writable(topic, queue)
            batch = with_delayed_flag(check(batch))
            topic_id, delayed_count = topic.topic_id, batch.count if batch.delayed else 0
            future = self.links.to(queue.enode).append(topic.topic_id, queue.queue_id, batch, flush_mode)
        except OrtooError as error:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        item = _PendingBatch(request_id, size_bytes, future, arrived_s, topic_id, delayed_count)
        self._bytes += item.size_bytes
        self._batches += 1
        self._by_queue[queue].append(item)
        if future.done():
            self._settle(queue)
        else:
            future.add_done_callback(lambda _: self._settle(queue))

    def finish(self, error: OrtooError | None = None) -> None:
        """Record the end of the input. With `error`, the stream fails with this error after the last answer."""
        self._ended, self._error = True, error
        self._has_results.set()

    async def next_results(self) -> list[ProduceResult]:
        """Wait for answers, and return all of them; an empty list at the end of the stream.

        Errors: the error given to `finish`.
        """
        while not self._results:
            if self._ended and not self._batches:
                if self._error is not None:
                    raise self._error
                return []
            self._has_results.clear()
            await self._has_results.wait()
        ready, self._results = self._results, deque()
        for _, size_bytes in ready:
            self._bytes -= size_bytes
            self.memory.release(size_bytes)
        self._batches -= len(ready)
        self._has_room.set()
        return [answer for answer, _ in ready]

    def _settle(self, queue: Queue) -> None:
        """Answer the batches of a queue, in order, up to the first batch whose outcome is unknown."""
        line = self._by_queue.get(queue, deque())
        while line and line[0].future.done():
            item = line.popleft()
            result = _make_result(item, queue, self.directory.seals)
            self._results.append((result, item.size_bytes))
            status = "OK" if result.error is None else status_of(result.error).name
            self.on_answered(status, self.clock.monotonic_s() - item.arrived_s)
        if not line:
            self._by_queue.pop(queue, None)
        self._has_results.set()


def _make_result(item: _PendingBatch, queue: Queue, seals: HandleSeals) -> ProduceResult:
    error = item.future.exception() if not item.future.cancelled() else None
    if error is None and not item.future.cancelled():
        appended, seal = item.future.result(), b""
        if item.delayed_count:
            place = (queue.enode, item.topic_id, queue.queue_id, appended.first_offset, item.delayed_count)
            seal = DelayedBatch(*place).seal(seals)
        return ProduceResult(item.request_id, appended, None, seal)
    if isinstance(error, OrtooError):
        return ProduceResult(item.request_id, None, explain_error(error))
    _log.emit(log_events.BATCH_SEND_DEFECT, exc_info=error)
    return ProduceResult(item.request_id, None, Internal("the snode failed to forward the batch; its log has details"))

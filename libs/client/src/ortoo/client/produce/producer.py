"""The producer: messages in, batches out, receipts back."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Self

from ortoo.client import log_events
from ortoo.client.core.closed import ClientClosed, Openable
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue, Receipt
from ortoo.client.produce.future_builder import FutureBuilder
from ortoo.client.produce.in_flight import FailureAction, InFlight
from ortoo.client.produce.produce_call import ProduceCall
from ortoo.client.produce.producer_batch import ProducerBatch, SendFuture, SendFutures, UnreportedErrors
from ortoo.client.produce.producer_settings import CHUNK_MESSAGES, ProducerSettings
from ortoo.client.produce.publish import publish_once
from ortoo.client.produce.queue_batcher import LINGERING_BYTES_MAX, PROMPT_BATCHES_MAX, QueueBatcher, closing
from ortoo.client.produce.routes import ROUTE_REFRESH_MIN_S, Route, query_route, wait_for_route
from ortoo.client.produce.spans import enqueue_traced, sending, sending_many
from ortoo.client.requests.requester import DEDUP_ID, Requester
from ortoo.common.errors import NOT_ACCEPTED_FIELD, Invalid, NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.records.message import Message, alike, message_of
from ortoo.common.records.message_fields import NO_RARE_FIELDS, RareFields

_log = get_logger("producer")


class Producer(Openable):
    """Sends messages to one topic. Made by `Client.producer`; an async context manager that flushes on exit.

    A message is durable when its receipt is returned. A retry after a lost answer stores nothing twice. Messages of one
    message group go to one queue and keep their order. Other messages are batched for one queue at a time.
    """

    def __init__(self, connection: Connection, topic: str, settings: ProducerSettings, requester: Requester) -> None:
        """Applications use `Client.producer`."""
        self._requester = requester
        self._connection = connection
        self._topic = topic
        self._settings = settings
        self._clock = connection.clock
        self._telemetry = telemetry = connection.telemetry
        self._take = self._enqueue if telemetry is None else partial(enqueue_traced, telemetry, topic, self._enqueue)
        self._background = Background(f"producer {topic}")
        self._route: Route
        self._batchers: dict[Queue, QueueBatcher] = {}
        self._sticky_number = connection.randomness.below(1 << 16)
        self._sticky: QueueBatcher
        self._filling: FutureBuilder | None = None
        """Takes plain messages for the open batch of `_sticky`; None = only `_enqueue` can take a message."""
        self._call: ProduceCall | None = None
        self._unacknowledged_bytes = 0
        self._in_flight_batches = 0
        self._lingering: dict[QueueBatcher, None] = {}
        """Queues whose open batch waits for more messages, the longest waiting first."""
        self._must_yield = False
        self._has_batches = asyncio.Event()
        self._route_stale = asyncio.Event()
        self._batch_done = asyncio.Event()
        """Set when a batch gets its outcome: there may be memory again, or nothing left to wait for."""
        self._unreported = UnreportedErrors()
        self._not_open: str | None = "this producer is not open; enter it with `async with` first"

    async def __aenter__(self) -> Self:
        self._route, self._not_open = await wait_for_route(self._connection, self._topic, self._settings), None
        self._choose_next_queue()
        self._check_first_entry()
        await self._background.__aenter__()
        self._background.spawn("conversation", self._run_stream())
        self._background.every("deadlines", 1.0, self._expire_batches, clock=self._clock)
        self._background.every("route", self._settings.route_interval_ms / 1000, self._refresh_route, clock=self._clock)
        self._background.spawn("doubts", self._refresh_stale_route())
        return self

    async def __aexit__(self, *ended: Any) -> None:
        try:
            if ended[0] is None:
                async with closing(self._topic, self._batchers.values(), self._settings.close_timeout_ms / 1000):
                    await self.flush()
        finally:
            self._not_open, self._filling = "this producer is closed; make a new one", None
            await self._background.__aexit__(*ended)
            for batcher in self._batchers.values():
                batcher.abandon()
            self._batch_done.set()

    async def send(self, message: Message | bytes) -> Receipt:
        """Send one message and wait until it is stored.

        Errors: Invalid and NotFound (nothing stored), Unavailable when no answer came in time (outcome unknown).
        """
        if self._unacknowledged_bytes > self._settings.memory_bytes_max:
            await self.wait_for_room()
        return await self._take(message)

    async def send_once(self, message: Message | bytes, dedup_id: str) -> Receipt:
        """Send a message with a dedup id; the topic stores one message per id, also if several producers send it.

        The enodes remember ids for a window (default 10 minutes). If a message with this id was stored before, the
        receipt has the position of that message and a `stored_at_ms` of 0. Errors: Invalid, NotFound, Unavailable
        (outcome unknown, retry with the same id).
        """
        self._check_open()
        with sending(self._telemetry, self._topic) as stamp:
            return await publish_once(self._connection, self._topic, stamp(message), dedup_id)

    async def request(self, message: Message | bytes, *, timeout_s: float = 3.0) -> Message:
        """Send a request and wait up to `timeout_s` for the reply of a consumer.

        Errors: RequestTimeout, Invalid and NotFound (nothing stored), Overloaded if 10,000 requests already wait.
        """
        self._check_open()
        with sending(self._telemetry, self._topic, "request") as stamp:
            return await self._requester.request(self._topic, stamp(message), timeout_s)

    async def enqueue(self, message: Message | bytes) -> SendFuture:
        """Take a message and send it with others; await the result for its receipt, or `flush` for all messages.

        Waits while too many bytes are in flight; a call cancelled during this wait sends nothing. Errors: Invalid.
        """
        if self._must_yield or self._unacknowledged_bytes > self._settings.memory_bytes_max:
            await self._yield_and_wait()
        elif (filling := self._filling) is not None and (future := filling.take_plain(message)):
            return future
        return self._take(message)

    def enqueue_nowait(self, message: Message | bytes) -> SendFuture:
        """Take a message without waiting; see `enqueue`. Errors: Invalid, Overloaded (too many bytes in flight)."""
        if (unacknowledged := self._unacknowledged_bytes) > self._settings.memory_bytes_max:
            raise Overloaded(f"{unacknowledged} bytes wait for an answer; await `enqueue` instead", retry_after_ms=10)
        return self._take(message)

    async def wait_for_room(self) -> None:
        """Wait until `enqueue_nowait` accepts a message."""
        while self._unacknowledged_bytes > self._settings.memory_bytes_max and self._not_open is None:
            self._batch_done.clear()
            await self._batch_done.wait()

    async def send_many(self, messages: Iterable[Message | bytes]) -> SendFutures:
        """Take many messages, waiting while too many bytes are in flight; await the result, or `flush`."""
        with sending_many(self._telemetry, self._topic, messages) as (stamped, ending):
            return ending(await self._send_many(iter(stamped)))

    async def _send_many(self, source: Iterator[Message | bytes]) -> SendFutures:
        runs: list[tuple[SendFuture, int]] = []
        while chunk := alike(list(islice(source, CHUNK_MESSAGES))):
            while chunk:
                await self._yield_and_wait()
                chunk = chunk[self._enqueue_some(chunk, runs) :]
        return SendFutures(runs)

    async def flush(self) -> None:
        """Wait until every message taken so far has its outcome. Errors: the first failure not reported yet."""
        self._connection.check_usable()
        for batcher in list(self._batchers.values()):  # sealing may open a batch of another queue
            self._seal(batcher)
        while not (self._not_open or all(batcher.is_idle for batcher in self._batchers.values())):
            self._batch_done.clear()
            await self._batch_done.wait()
        self._unreported.raise_first()

    async def _yield_and_wait(self) -> None:
        """Yield so that a sealed batch is sent before the next one is filled, and wait for memory."""
        if self._must_yield:
            self._must_yield = False
            await self._clock.sleep(0)
        await self.wait_for_room()

    def _check_open(self) -> None:
        self._connection.check_usable()
        if self._not_open is not None:
            raise ClientClosed(self._not_open)

    def _enqueue(self, given: Message | bytes) -> SendFuture:
        if self._filling is not None and (future := self._filling.take_plain(given)) is not None:
            return future
        self._check_open()
        message = given if type(given) is bytes else message_of(given)
        rare = NO_RARE_FIELDS if isinstance(message, bytes) else message.rare
        if DEDUP_ID in rare.properties:
            raise Invalid(f"property {DEDUP_ID} is reserved; use send_once for a dedup id", field="properties")
        batcher = self._batcher_of(rare)
        while (row := batcher.builder.add(message)) is None:
            self._seal(batcher)  # the open batch of the next queue may be too full as well
            batcher = self._batcher_of(rare)
        batch = batcher.open_batch = batcher.open_batch or self._new_batch(batcher)
        batch.is_pinned |= rare.message_group is not None
        if batcher.linger_timer is None and batcher.builder.size_bytes > LINGERING_BYTES_MAX:
            self._seal(batcher)
        elif batcher is self._sticky and self._telemetry is None and not batch.is_pinned:
            self._filling, batcher.builder.batch = batcher.builder, batch
        return batch.send_future(row, rare.message_id)

    def _enqueue_some(self, messages: Sequence[Message | bytes], runs: list[tuple[SendFuture, int]]) -> int:
        """Take messages of one type from the front of `messages`, and add them to `runs`; returns their number."""
        self._check_open()
        first = messages[0]
        if isinstance(first, Message) and first.rare is not NO_RARE_FIELDS:
            runs.append((self._enqueue(first), 1))
            return 1
        batcher = self._batcher_of(NO_RARE_FIELDS)
        row, count = len(batcher.builder), batcher.builder.extend(messages)  # type: ignore[arg-type]
        if count:
            batch = batcher.open_batch = batcher.open_batch or self._new_batch(batcher)
            runs.append((batch.send_future(row), count))
        else:
            self._seal(batcher)
        return count

    def _new_batch(self, batcher: QueueBatcher) -> ProducerBatch:
        loop = asyncio.get_running_loop()
        deadline_s = self._clock.monotonic_s() + self._settings.delivery_timeout_s
        batch = ProducerBatch(batcher.queue, self._route.topic_id, loop.create_future(), deadline_s, self._unreported)
        batch.is_pinned = self._route.has_priority_levels
        # With few batches in flight, the batch is sealed at the end of this turn of the loop. Otherwise it waits for
        # messages until an answer comes, so that batches grow with the latency of answers.
        if self._in_flight_batches < PROMPT_BATCHES_MAX and batcher.can_send_now:
            batcher.linger_timer = loop.call_soon(self._seal, batcher)
        else:
            batcher.linger_timer = loop.call_later(self._settings.linger_ms / 1000, self._on_linger_timeout, batcher)
            self._lingering[batcher] = None
        return batch

    def _on_linger_timeout(self, batcher: QueueBatcher) -> None:
        """Seal a batch that can be sent. A batch that would wait behind others grows until it can be sent or is large.

        An unbound batch goes to a queue that can send; while no queue can, this check is repeated. A bound batch is
        sealed at the next answer of its queue.
        """
        batcher.linger_timer = None
        batch = batcher.open_batch
        assert batch is not None, "its timer would be cancelled"
        may_choose = batch.can_reroute or batcher is self._sticky
        if batcher.can_send_now or (may_choose and self._choose_free_queue() and batch.can_reroute):
            self._seal(batcher)
        elif batch.can_reroute:
            delay_s = max(self._settings.linger_ms, 1.0) / 1000
            batcher.linger_timer = asyncio.get_running_loop().call_later(delay_s, self._on_linger_timeout, batcher)

    def _batcher_of(self, rare: RareFields) -> QueueBatcher:
        if rare.message_group is not None:
            return self._batcher(self._route.queue_of_group(rare.message_group))
        if self._route.has_priority_levels:
            return self._batcher(self._route.queue_of_priority(rare.priority or 0, self._sticky.queue.enode))
        return self._sticky

    def _choose_next_queue(self) -> None:
        """Select the next queue for messages without a message group, and the enode for those with a priority.

        It is a queue that can send now, else a queue without a pending retry, else the next queue in turn.
        """
        if not self._choose_free_queue():
            self._choose_queue(lambda batcher: not batcher.is_retrying)

    def _choose_free_queue(self) -> bool:
        """Select a queue that can send a batch now; if no queue can, select the next queue and return False."""
        return self._choose_queue(lambda batcher: batcher.can_send_now)

    def _choose_queue(self, matches: Callable[[QueueBatcher], bool]) -> bool:
        self._filling = None
        for _ in (queues := self._route.writable):
            self._sticky_number += 1
            self._sticky = self._batcher(queues[self._sticky_number % len(queues)])
            if matches(self._sticky):
                return True
        return False

    def _batcher(self, queue: Queue) -> QueueBatcher:
        if queue not in self._batchers:
            builder = FutureBuilder(self._connection, self._settings.batch_bytes_max)
            self._batchers[queue] = QueueBatcher(queue, InFlight(self._connection.randomness.id64), builder)
        return self._batchers[queue]

    def _seal(self, batcher: QueueBatcher) -> None:
        if (batch := batcher.take_open_batch()) is None:
            return
        self._filling = None
        self._lingering.pop(batcher, None)
        if batcher is self._sticky or self._route.has_priority_levels:
            self._choose_next_queue()
        if not batch.encode(*batcher.builder.take(), now_ms=self._clock.now_ms(), codec=self._settings.codec):
            batch.complete(-1, 0)
            self._batch_done.set()
            return
        self._unacknowledged_bytes += len(batch.sealed.records)
        self._in_flight_batches += 1
        self._must_yield = True
        self._has_batches.set()
        self._put(batch, batcher)

    def _put(self, batch: ProducerBatch, batcher: QueueBatcher) -> None:
        """Add a batch to a queue. If the batch would have to wait there and may be moved, another queue is tried."""
        if batch.can_reroute and not batcher.can_send_now:
            self._choose_next_queue()
            if not self._sticky.is_retrying:
                batch.queue = (batcher := self._sticky).queue
        batcher.in_flight.put(batch)
        self._send_ready(batcher)

    def _send_ready(self, batcher: QueueBatcher) -> None:
        """Give all sendable batches to the stream."""
        while self._call is not None and (batch := batcher.in_flight.next_to_send()) is not None:
            self._call.send(batch)
        if batcher in self._lingering and batcher.linger_timer is None and batcher.can_send_now:
            self._seal(batcher)

    def _on_result(self, batch: ProducerBatch, error: OrtooError | None) -> None:
        if batch.future.done():
            return  # it expired before its answer came
        batcher = self._batchers[batch.queue]
        if error is None:
            batcher.on_stored(batch)
            self._finish(batch, None)
        else:
            if isinstance(error, NotFound | Unavailable) or error.field == NOT_ACCEPTED_FIELD:
                self._route_stale.set()
            batcher.log_refusal(error)
            for one in self._take_failed(batch, batcher.in_flight, error):
                self._put(one, batcher)
        self._send_next(batcher, failed=error is not None)

    def _send_next(self, batcher: QueueBatcher, *, failed: bool) -> None:
        """Send the next batches. If nothing is in flight, schedule the retry of returned batches."""
        if batcher.in_flight.is_ready_to_retry and batcher.retry_timer is None:
            delay_s = self._connection.backoff.delay_s(batcher.attempt, self._connection.randomness) if failed else 0.0
            batcher.attempt += 1
            batcher.retry_timer = asyncio.get_running_loop().call_later(delay_s, self._retry, batcher)
        self._send_ready(batcher)

    def _take_failed(self, batch: ProducerBatch, in_flight: InFlight, error: OrtooError) -> list[ProducerBatch]:
        """Handle a failed batch: finish a permanent failure, and return the batches that need another queue."""
        if (action := in_flight.on_failed(batch, error)) is FailureAction.FAIL:
            self._finish(batch, error)
            return []
        unsent = in_flight.take_reroutable()
        return [batch, *unsent] if action is FailureAction.REROUTE else unsent

    def _retry(self, batcher: QueueBatcher) -> None:
        batcher.retry_timer = None
        batcher.in_flight.retry()
        self._send_ready(batcher)

    def _finish(self, batch: ProducerBatch, error: OrtooError | None) -> None:
        self._unacknowledged_bytes -= len(batch.sealed.records)
        self._in_flight_batches -= 1
        if self._lingering and self._in_flight_batches < PROMPT_BATCHES_MAX:
            self._seal(next(iter(self._lingering)))
        if error is None:
            batch.complete(batch.first_offset, batch.stored_at_ms)
        else:
            batch.fail(error)
        self._batch_done.set()

    async def _run_stream(self) -> None:
        """Keep a stream open after the first send. After a break, batches without an answer are sent again."""
        await self._has_batches.wait()
        await self._connection.run_with_failover(self._stream_to)

    async def _stream_to(self, address: str) -> bool:
        """Send over one stream until it breaks; returns whether its snode has answered."""
        for batcher in self._batchers.values():
            batcher.in_flight.retry()
        call = self._call = ProduceCall(self._connection.channel(), address, self._on_result, clock=self._clock)
        for batcher in list(self._batchers.values()):  # sending may open another batch
            self._send_ready(batcher)
        await call.run()
        self._call = None
        for batcher in self._batchers.values():
            batcher.in_flight.on_connection_lost()
        return call.has_responded

    async def _expire_batches(self) -> None:
        now_s, timeout_s = self._clock.monotonic_s(), self._settings.delivery_timeout_s
        for batcher in list(self._batchers.values()):  # a failure may open another batch
            if batcher.open_batch is not None and batcher.open_batch.deadline_s <= now_s:
                self._seal(batcher)
            for batch in (expired := batcher.in_flight.take_expired(now_s)):
                self._finish(batch, batcher.timeout_error(batch, timeout_s))
            if expired:  # later answers are ignored, so batches behind them must not wait for those
                self._send_next(batcher, failed=True)

    async def _refresh_route(self) -> None:
        self._route = await query_route(self._connection, self._topic)
        if self._sticky.open_batch is None and self._sticky.queue not in self._route.writable:
            self._choose_next_queue()

    async def _refresh_stale_route(self) -> None:
        """Query the route again after a missing queue or a failed enode, once a second at most."""
        while True:
            await self._route_stale.wait()
            self._route_stale.clear()
            try:
                await self._refresh_route()
            except OrtooError as error:
                self._connection.retry_log.emit(_log, log_events.ROUTE_LOOKUP_FAILED, error, topic=self._topic)
            await self._clock.sleep(ROUTE_REFRESH_MIN_S)

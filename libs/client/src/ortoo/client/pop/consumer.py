"""The pop consumer: any number of workers share the messages of a topic, one by one."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self

from ortoo.client import log_events
from ortoo.client.core.closed import ConsumerClosed, Openable, check_loop
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, filter_expressions
from ortoo.client.core.handlers import ERROR_LENGTH_MAX
from ortoo.client.core.received import BatchOwner
from ortoo.client.handling.calls import HandlerCalls
from ortoo.client.handling.loop_watch import LoopWatch
from ortoo.client.handling.runs import FINISH_TIMEOUT_S, HandlerRuns
from ortoo.client.pop.blocked_renewal import BlockedRenewal
from ortoo.client.pop.handling import run_batch_handlers, run_handlers
from ortoo.client.pop.outcome import check_not_stale
from ortoo.client.pop.pop_calls import PopCalls, receipts_of
from ortoo.client.pop.popped import PopLease, PoppedMessage, by_enode, lease_of, request_chunks, take_messages
from ortoo.client.pop.settings import PopSettings
from ortoo.client.requests.replies import send_reply
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.grpc.messages import write
from ortoo.common.grpc.request_batcher import RequestBatcher
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import pop_pb2

PopHandler = Callable[[PoppedMessage], Awaitable[None] | None]
PopBatchHandler = Callable[[Sequence[PoppedMessage]], Awaitable[None] | None]
CLOSE_TIMEOUT_S = 10.0
"""Time limit of the last acknowledgements, and of the release of messages, when a consumer is closed."""
SHARED_POPS_MAX = 2
"""Largest number of shared pops in flight; further requests wait for the next one."""
SHARED_MESSAGES_MAX = 1_024
"""Largest number of messages of a shared pop."""
_log = get_logger("consumer")


class PopConsumer(Openable):
    """A worker of a group. Made by `Client.pop_consumer`; an async context manager.

    On exit it releases messages that were not acknowledged or nacked, without counting an attempt.
    """

    def __init__(self, connection: Connection, group: str, topic: str, filter: Filter, settings: PopSettings) -> None:
        """Applications use `Client.pop_consumer`."""
        if settings.messages_max < 1 or settings.invisible_ms < 10:
            raise Invalid("expected messages_max of 1 or more and invisible_ms of 10 or more", field="settings")
        tags, sql = filter_expressions(filter)
        self._group = group
        self._connection = connection
        self._clock = connection.clock
        self._batch_owner = BatchOwner(reply_call=partial(send_reply, connection))
        self._settings = settings
        self._client_id = settings.client_id or connection.client_id
        start_from = pop_pb2.POP_START_LAST if settings.from_last else pop_pb2.POP_START_FIRST
        self._options = write(pop_pb2.PopOptions, settings, start_from=start_from)
        self._request = pop_pb2.PopRequest(
            group=group,
            topic=topic,
            invisible_ms=int(settings.invisible_ms),
            tag_expression=tags,
            sql_expression=sql,
            client_id=self._client_id,
            options=self._options,
        )
        self._background = Background(f"pop consumer {group}")
        self._calls = PopCalls(connection, self._background, retry_timeout_s=settings.invisible_ms / 1000)
        self._unanswered_attempts: list[str] = []
        """Attempt ids of pops without an answer; an enode may have leased messages for them."""
        self._cancelled_attempts: list[str] = []
        """Attempt ids of cancelled pops, whose messages must be released."""
        self._pops: RequestBatcher[int, list[PopLease]] = RequestBatcher(
            self._pop_shared,
            self._background,
            size_max=SHARED_MESSAGES_MAX,
            size_of=lambda count: count,
            in_flight_max=SHARED_POPS_MAX,
            unclaimed=self._release,
        )
        self._renew_interval_s = settings.invisible_ms / 3000
        """A lease is renewed after this time; checks are four times as frequent."""
        self._renewing_enodes: set[str] = set()
        """Enodes with a renewal in flight."""
        self._leases: dict[PopLease, None] = {}
        renewal = BlockedRenewal(
            connection, self._leases, invisible_ms=settings.invisible_ms, renew_max_ms=settings.renew_max_ms
        )
        self._watch = LoopWatch(self._clock, self._renew_interval_s, renewal.renew)
        self._runs = HandlerRuns()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = self._is_busy = self._was_answered = False
        """Busy: the last pop returned all requested messages, so that more are likely. Answered: a pop of `run`
        succeeded, so that a later refusal of the group is temporary."""

    async def __aenter__(self) -> Self:
        self._check_first_entry()
        await self._background.__aenter__()
        self._is_open, self._loop = True, asyncio.get_running_loop()
        if self._settings.renew_max_ms > 0:
            self._background.every("renew", self._renew_interval_s / 4, self._renew, clock=self._clock)
            if type(self._clock) is SystemClock:  # on virtual time no loop is blocked
                self._watch.start()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        self._is_open = False
        self._watch.stop()
        try:
            self._pops.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._calls.drain()
        finally:
            try:
                await self._background.__aexit__(*ended)  # may raise CancelledError
            finally:
                try:
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await self._release(list(self._leases))
                        self._cancelled_attempts += self._unanswered_attempts
                        await self._release_cancelled()
                except TimeoutError:
                    _log.emit(log_events.LEASE_RELEASE_FAILED, reason=f"no answer within {CLOSE_TIMEOUT_S:g} s")

    async def pop(self, messages_max: int = 0, wait_ms: float | None = None) -> list[PoppedMessage]:
        """Take up to `messages_max` messages (0 = the setting).

        Waits up to `wait_ms` for the first message; returns an empty list if no message arrives.

        Under load, concurrent calls of several tasks are combined into one request. Errors: Invalid, NotFound, Conflict
        (the group may not consume), Unavailable, or ConsumerClosed outside the consumer's `async with` block.
        """
        self._check_open()
        count = messages_max or self._settings.messages_max
        wait_ms = self._settings.wait_ms if wait_ms is None else wait_ms
        leases: list[PopLease] = []
        if was_busy := self._is_busy:
            leases = await self._pops.request(count)
        if not leases and (wait_ms or not was_busy):
            leases = await self._pop(count, int(wait_ms))
        if not self._is_open:  # the block ended during the pop
            await self._release(leases)
            self._check_open()
        self._is_busy = sum(map(len, leases)) >= count
        self._leases.update(dict.fromkeys(leases))
        return [message for lease in leases for message in lease.messages(self)]

    async def _pop(self, count: int, wait_ms: int = 0) -> list[PopLease]:
        attempt_id = (
            self._unanswered_attempts.pop() if self._unanswered_attempts else self._connection.randomness.id_text()
        )
        try:
            return await self._pop_attempt(attempt_id, count, wait_ms)
        except Unavailable:
            self._unanswered_attempts.append(attempt_id)
            raise
        except asyncio.CancelledError:
            # The next pop must not reuse this id: the enode no longer leases messages under it.
            self._cancelled_attempts.append(attempt_id)
            if self._is_open:  # otherwise __aexit__ does it
                self._background.spawn("call off", self._release_cancelled())
            raise

    async def _pop_attempt(
        self, attempt_id: str, count: int, wait_ms: int = 0, *, cancel: bool = False
    ) -> list[PopLease]:
        request = pop_pb2.PopRequest()
        request.CopyFrom(self._request)
        request.messages_max, request.wait_ms, request.attempt_id = count, wait_ms, attempt_id
        request.cancel = cancel
        answer = await (self._calls.cancel(request) if cancel else self._calls.pop(request))
        now_s = self._clock.monotonic_s()
        return [lease_of(popped, now_s, self._batch_owner) for popped in answer.batches]

    async def _pop_shared(self, counts: Sequence[int]) -> list[list[PopLease]]:
        """Pop for several tasks at once, without waiting for messages, so that later calls are not delayed."""
        leases = deque(await self._pop(sum(counts)))
        shares = [take_messages(leases, count) for count in counts]
        if leases:
            self._background.spawn("give back", self._release(leases))
        return shares

    def _release(self, leases: Iterable[PopLease]) -> Coroutine[Any, Any, None]:
        """Release messages that no handler has seen, without counting an attempt.

        The messages are registered before the first await, so that `__aexit__` also releases them.
        """
        released = list(leases)
        self._leases.update(dict.fromkeys(released))
        return self._release_each(released)

    async def _release_each(self, leases: Iterable[PopLease]) -> None:
        for enode, some in by_enode(leases).items():
            for part in request_chunks(some):
                chosen = [(lease, self._mark_settled(lease, sorted(lease.open_offsets))) for lease in part]
                try:
                    await self._send_nack(chosen, delay_ms=0, count_attempt=False)
                except OrtooError as failure:
                    _log.emit(log_events.LEASE_RELEASE_FAILED, enode=enode, reason=str(failure))
                    if failure.retriable:
                        break  # the other parts would fail there as well

    def _release_unhandled(self, messages: Iterable[PoppedMessage]) -> None:
        """Release messages without an outcome whose handlers are not called any more or were stopped."""
        by_lease: dict[PopLease, list[int]] = {}
        for message in messages:
            if message.offset in message.lease.open_offsets:
                by_lease.setdefault(message.lease, []).append(message.offset)
        if by_lease and self._is_open:  # otherwise the end of the block does it
            self._background.spawn("give back", self._release_offsets(by_lease))

    async def _release_offsets(self, by_lease: Mapping[PopLease, Iterable[int]]) -> None:
        for lease, offsets in by_lease.items():
            with suppress(OrtooError):  # then they come again when the lease ends
                await self.nack(lease, offsets, delay_ms=0, count_attempt=False, error="", park=False)

    async def _release_cancelled(self) -> None:
        """Release the messages of cancelled pops."""
        while self._cancelled_attempts:
            attempt_id = self._cancelled_attempts.pop()
            try:
                # An older snode ignores `cancel` and pops; messages that it finds are released as well.
                await self._release(await self._pop_attempt(attempt_id, self._settings.messages_max, cancel=True))
            except OrtooError as failure:
                _log.emit(log_events.CANCELLED_POP_RELEASE_FAILED, reason=str(failure))
                return
            except asyncio.CancelledError:
                self._cancelled_attempts.append(attempt_id)
                raise

    def _check_open(self) -> None:
        check_loop(self._loop)
        if not self._is_open:
            raise ConsumerClosed("this consumer is not open; enter it with `async with` first")

    async def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        """Messages as they arrive; never ends."""
        while True:
            for message in await self.pop():
                yield message

    async def run(self, handler: PopHandler | HandlerCalls[PoppedMessage, None], *, concurrency: int = 1) -> None:
        """Give each message to `handler`, up to `concurrency` at a time; acknowledge it when the handler returns.

        When a handler raises, its message is nacked. `RetryLater` sets the delay; any other exception uses the group's
        retry policy, and its text is kept for the dead letter. Runs until cancelled, or until the group is refused at
        the first pop. Later `run` waits while the group is disabled or no snode answers. At its end, it releases the
        messages of handlers that it has cancelled.
        """
        calls: HandlerCalls[PoppedMessage, None] = HandlerCalls.of(handler, threads=concurrency)
        pop_max = min(self._settings.messages_max, concurrency)
        await run_handlers(self, self._runs, calls, pop_max=pop_max, concurrency=concurrency)

    async def run_batches(
        self,
        handler: PopBatchHandler | HandlerCalls[Sequence[PoppedMessage], None],
        *,
        batch_messages_max: int = 32,
        concurrency: int = 1,
    ) -> None:
        """As `run`, but each call of `handler` gets up to `batch_messages_max` messages, those that are available.

        Messages that the handler acknowledges, nacks or parks itself keep this outcome. The others are acknowledged
        when it returns, and nacked when it raises.
        """
        if batch_messages_max < 1:
            raise Invalid(f"{batch_messages_max}; expected 1 or more", field="batch_messages_max")
        calls: HandlerCalls[Sequence[PoppedMessage], None] = HandlerCalls.of(handler, threads=concurrency)
        await run_batch_handlers(self, self._runs, calls, pop_max=batch_messages_max, concurrency=concurrency)

    async def stop(self, finish_timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Begin no further handlers, wait up to `finish_timeout_s` for the running ones, and let `run` return.

        Messages of handlers that have not finished in time are released.
        """
        await self._runs.stop(finish_timeout_s)

    async def ack(self, lease: PopLease, offsets: Iterable[int]) -> None:
        """Acknowledge messages of a lease; concurrent acknowledgements share a request."""
        self._check_open()
        chosen = self._mark_settled(lease, offsets)
        check_not_stale(lease, await self._calls.ack(lease.batch.queue.enode, lease.receipt_handle, chosen))

    async def nack(
        self,
        lease: PopLease,
        offsets: Iterable[int],
        *,
        delay_ms: float | None,
        count_attempt: bool,
        error: str,
        park: bool,
    ) -> None:
        """Nack, release or park messages of a lease."""
        chosen = self._mark_settled(lease, offsets)
        if not chosen:
            return
        check_not_stale(
            lease,
            await self._send_nack(
                [(lease, chosen)], delay_ms=delay_ms, count_attempt=count_attempt, error=error, park=park
            ),
        )

    async def _send_nack(
        self,
        chosen: Sequence[tuple[PopLease, list[int]]],
        *,
        delay_ms: float | None,
        count_attempt: bool,
        error: str = "",
        park: bool = False,
    ) -> list[int]:
        """Nack, release or park messages of leases; returns the stale offsets."""
        request = pop_pb2.NackRequest(
            receipts=receipts_of((lease.receipt_handle, offsets) for lease, offsets in chosen),
            uncounted=not count_attempt,
            error=error[:ERROR_LENGTH_MAX],
            client_id=self._client_id,
            park=park,
            options=self._options,
        )
        if delay_ms is not None:
            request.delay_ms = int(delay_ms)
        try:
            return await self._calls.nack(request)
        except asyncio.CancelledError:  # it may not have arrived; __aexit__ releases them again
            for lease, offsets in chosen:
                lease.open_offsets.update(offsets)
                self._leases[lease] = None
            raise

    def _mark_settled(self, lease: PopLease, offsets: Iterable[int]) -> list[int]:
        chosen = list(offsets)
        lease.open_offsets.difference_update(chosen)
        if not lease.open_offsets:
            self._leases.pop(lease, None)
        return chosen

    async def _renew(self) -> None:
        """Renew due leases, for each enode separately, so that one without an answer does not delay others."""
        self._watch.beat()
        now_s = self._clock.monotonic_s()
        due = by_enode(
            lease
            for lease in self._leases
            if (now_s - lease.popped_at_s) * 1000 < self._settings.renew_max_ms
            and lease.renewed_at_s + self._renew_interval_s <= now_s
        )
        for enode in [one for one in due if one not in self._renewing_enodes]:  # a set would have no fixed order
            self._renewing_enodes.add(enode)
            self._background.spawn("renew", self._renew_at(enode, due[enode]))

    async def _renew_at(self, enode: str, leases: Sequence[PopLease]) -> None:
        """Renew leases of one enode; failures are retried at the next check, before the leases end."""
        try:
            await asyncio.gather(*map(self._renew_part, request_chunks(leases)))
        finally:
            self._renewing_enodes.discard(enode)

    async def _renew_part(self, leases: Sequence[PopLease]) -> None:
        now_s = self._clock.monotonic_s()
        receipts = [(one.receipt_handle, sorted(one.open_offsets)) for one in leases]
        invisible_ms = int(self._settings.invisible_ms)
        try:
            refused, stale = await self._calls.renew(receipts, invisible_ms, timeout_s=self._renew_interval_s)
        except OrtooError as error:
            self._connection.retry_log.emit(_log, log_events.LEASE_RENEWAL_FAILED_RETRYING, error, leases=len(leases))
            return
        for lease in leases:
            lease.renewed_at_s = now_s
            handle = lease.receipt_handle
            lost = [offset for offset in lease.open_offsets if handle in refused or (handle, offset) in stale]
            self._mark_settled(lease, lost)

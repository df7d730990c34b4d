"""Runs handlers for a push consumer, and handles messages whose handler failed.

A message without a message group is nacked. The server counts the attempt and delivers it again through the group's
retry topic, or parks it; later messages are not delayed. Messages of one message group keep their order. If a message
with a message group fails, the rest of its queue waits until this message succeeds or is parked.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ortoo.client import log_events
from ortoo.client.core.handlers import LocalAttempts, RetryLater, log_fields
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.core.suspension import QueueHold
from ortoo.client.handling.calls import HandlerCalls
from ortoo.client.handling.runs import HandlerRuns
from ortoo.client.push.push_member import PushMember
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background, pause
from ortoo.common.process.clock import Clock
from ortoo.v1 import pull_pb2

if TYPE_CHECKING:
    from ortoo.client.tracing.telemetry import Telemetry

Handler = Callable[[ReceivedMessage], Awaitable[None] | None]
NackCall = Callable[[Sequence[ReceivedMessage], BaseException, int], Awaitable[pull_pb2.NackMessagesResponse]]
"""`core.handlers.nack_messages` for a group."""
_log = get_logger("consumer")


class PushHandlers:
    """Gives messages to a handler, several at a time."""

    def __init__(
        self,
        group: str,
        handler: Handler,
        member: PushMember,
        nack: NackCall | None,
        clock: Clock,
        *,
        concurrency: int,
        retry_delay_ms: float,
        runs: HandlerRuns,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        """`nack` None = broadcast: this consumer keeps a failed message and retries it after `retry_delay_ms`."""
        self._group = group
        self._calls: HandlerCalls[ReceivedMessage, None] = HandlerCalls(handler, threads=concurrency)
        self._calls.trace(telemetry, group)
        self._member = member
        self._nack = nack
        self._clock = clock
        self._runs = runs
        self._slots = asyncio.Semaphore(concurrency)
        self._retry_delay_ms = retry_delay_ms
        self._lanes: dict[tuple[Queue, str], deque[ReceivedMessage]] = {}
        """By message group: the messages behind the one in the handler."""
        self._attempts = LocalAttempts()

    async def run(self, messages: AsyncIterator[ReceivedMessage]) -> None:
        """Handle messages until `messages` ends. The next message is fetched only when a handler may start."""

        async def take(background: Background) -> None:
            await self._wait_free_slot()
            async for message in messages:
                group = message.message_group
                if group is not None and (lane := self._lanes.get((message.queue, group))) is not None:
                    lane.append(message)
                    continue
                await self._slots.acquire()
                if group is None:
                    background.spawn("handle", self._handle(message, in_order=False))
                else:
                    lane = self._lanes[message.queue, group] = deque()
                    background.spawn("in order", self._handle_lane(message, (message.queue, group), lane))
                await self._wait_free_slot()

        await self._runs.run(self._calls, take)

    async def _wait_free_slot(self) -> None:
        """Wait for a free slot without taking it, because a retry may need it first."""
        async with self._slots:
            pass

    async def _handle_lane(
        self, message: ReceivedMessage, key: tuple[Queue, str], lane: deque[ReceivedMessage]
    ) -> None:
        await self._handle(message, in_order=True)
        while lane:
            await self._slots.acquire()
            await self._handle(lane.popleft(), in_order=True)
        del self._lanes[key]

    async def _handle(self, message: ReceivedMessage, *, in_order: bool) -> None:
        """Call the handler until it succeeds or the message is nacked or parked. Uses and releases an acquired slot.

        A message that this consumer no longer owns is skipped.
        """
        hold: QueueHold | None = None
        try:
            while message.is_current:
                self._attempts.start(message)
                async with self._calls.ended(message) as end:
                    self._slots.release()
                    wait_ms: float | None = None
                    if end.failure is not None:
                        if in_order and hold is None:
                            hold = self._hold(message)  # before the nack, because the queue may be lost during it
                        wait_ms = await self._handle_failure(message, end.failure, in_order)
                    if wait_ms is None:
                        self._attempts.forget(message)
                        message.ack()
                        return
                if hold is None:
                    await self._clock.sleep(wait_ms / 1000)
                else:
                    await pause(wait_ms / 1000, hold.revoked, self._clock)
                await self._slots.acquire()
            self._slots.release()
        finally:
            if hold is not None:
                self._member.release(hold)

    def _hold(self, message: ReceivedMessage) -> QueueHold:
        hold = self._member.hold(message.queue)
        if not message.is_current:
            hold.revoked.set()
        return hold

    async def _handle_failure(self, message: ReceivedMessage, failure: BaseException, in_order: bool) -> float | None:
        """Nack a failed message; returns the delay of a retry here in ms, or None when it was nacked or parked."""
        where = log_fields(self._group, message)
        _log.emit(log_events.HANDLER_FAILED_WILL_REDELIVER, exc_info=failure, **where)
        attempts = self._attempts.attempt_count(message)
        counts_here = not isinstance(failure, RetryLater) or failure.count_attempt
        if counts_here and (in_order or self._nack is None):  # the server counts the others
            self._attempts.store(message, attempts)
        if self._nack is None:
            return self._retry_delay_ms
        try:
            answer = await self._nack([message], failure, attempts if in_order else 0)
        except OrtooError as error:
            _log.emit(log_events.NACK_FAILED_RETRYING_LOCALLY, reason=str(error), **where)
            return self._retry_delay_ms
        if not in_order or answer.parked:
            return None
        return float(answer.delay_ms)

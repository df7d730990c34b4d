"""Runs handlers for a pull consumer, concurrently or one at a time for each queue."""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.handlers import LocalAttempts, RetryLater, log_fields, nack_messages
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.handling.calls import HandlerCalls, HandlerEnd
from ortoo.client.handling.runs import HandlerRuns
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.pull_member import PullMember
from ortoo.client.pull.settings import HandlerOptions
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.v1 import pull_pb2

SUSPEND_MIN_MS = 10.0
SUSPEND_MS = 1_000.0
"""Wait of an ordered queue while no server answers."""
_log = get_logger("consumer")


class CommitVerdict(enum.Enum):
    """The result of an ordered handler with `manual_commit`."""

    KEEP = "keep"
    """The message is processed. It is committed with a later one, or delivered again if this member loses the queue."""
    COMMIT = "commit"
    """Commit this message and all before it."""
    ROLLBACK = "roll_back"
    """Deliver this message and all since the last commit again, after a pause."""


BatchHandler = Callable[[Sequence[ReceivedMessage]], Awaitable[int | None] | int | None]


class PullHandlers:
    """Gives a member's messages to a handler until cancelled or refused by the server."""

    def __init__(
        self,
        connection: Connection,
        member: PullMember,
        calls: HandlerCalls[Sequence[ReceivedMessage], object],
        options: HandlerOptions,
        *,
        takes_batches: bool,
    ) -> None:
        """A handler that takes batches returns the number of processed messages from the front; None = all."""
        self._connection = connection
        self._clock = connection.clock
        self._member = member
        self._calls = calls
        self._takes_batches = takes_batches
        self._options = options
        self._slots = asyncio.Semaphore(options.concurrency)
        self._retries: list[tuple[ProcessQueue, Sequence[ReceivedMessage]]] = []
        """Failed messages kept here whose retry is due; they precede new ones."""
        self._running: dict[int, tuple[ProcessQueue, Sequence[ReceivedMessage], float]] = {}
        self._uncommitted: dict[ProcessQueue, list[ReceivedMessage]] = {}
        """Ordered processing: processed and uncommitted messages, by queue."""
        self._attempts = LocalAttempts()

    async def run(self, runs: HandlerRuns) -> None:
        """Handle messages as one of `runs`. Errors: the reason why the server refused the member."""
        ordered = self._member.is_ordered

        async def take(background: Background) -> None:
            if not ordered:
                background.spawn("stuck", self._nack_stuck())
            while True:
                await self._slots.acquire()
                taken = await self._member.next_from(self._take)
                assert taken is not None, "without a time limit something comes, or it is refused"
                queue, messages = taken
                queue.running_handlers += 1
                if ordered:
                    background.spawn("in order", self._handle_in_order(queue, messages))
                else:
                    background.spawn("handle", self._handle(queue, messages, background))

        await runs.run(self._calls, take)

    def _take(self, queue: ProcessQueue) -> tuple[ProcessQueue, Sequence[ReceivedMessage]] | None:
        """The next messages of a queue; None if no message waits, or if the queue is ordered and being processed."""
        for at, failed in enumerate(self._retries):
            if failed[0] is queue:
                return self._retries.pop(at)
        if not queue.has_waiting or (self._member.is_ordered and queue.running_handlers):
            return None
        several = self._takes_batches or self._member.is_ordered  # an ordered handler gets them one by one
        return queue, queue.take(self._options.batch_messages_max if several else 1)

    def _release_slot(self, queue: ProcessQueue) -> None:
        queue.running_handlers -= 1
        self._slots.release()
        self._member.has_messages.set()

    async def _nack(
        self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], failure: BaseException, attempt_in_order: int
    ) -> pull_pb2.NackMessagesResponse:
        return await nack_messages(
            self._connection,
            self._member.group,
            messages,
            failure,
            attempt_in_order,
            client_id=self._connection.client_id,
            attempts_max=self._options.attempts_max,
            generation=queue.generation,
        )

    # concurrent processing

    async def _handle(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], background: Background) -> None:
        key = id(messages)
        self._running[key] = (queue, messages, self._clock.monotonic_s())
        try:
            async with self._calls.ended(messages) as end:
                is_stuck = self._running.pop(key, None) is None
                if is_stuck:
                    return
                failed = messages[self._processed_count(messages, end) :]
                ack_all(messages[: len(messages) - len(failed)])
                failure = end.failure or RetryLater()
                if failed and not queue.is_dropped and not await self._nack_or_drop(queue, failed, failure):
                    background.spawn("again", self._retry_later(queue, failed))
        finally:
            self._running.pop(key, None)
            self._release_slot(queue)

    async def _retry_later(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        await self._clock.sleep(self._options.retry_delay_ms / 1000)
        self._retries = [one for one in (*self._retries, (queue, messages)) if not one[0].is_dropped]
        self._member.has_messages.set()

    def _processed_count(self, messages: Sequence[ReceivedMessage], end: HandlerEnd[object]) -> int:
        """The number of processed messages from the front."""
        if end.failure is not None:
            if not isinstance(end.failure, RetryLater):
                where = log_fields(self._member.group, messages[0])
                _log.emit(log_events.HANDLER_FAILED_WILL_REDELIVER, exc_info=end.failure, **where)
            return 0
        if self._takes_batches and isinstance(end.result, int):
            return max(0, min(end.result, len(messages)))
        return len(messages)

    async def _nack_or_drop(
        self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], failure: BaseException
    ) -> bool:
        """Nack or drop failed messages; returns False if they stay here."""
        if self._member.settings.broadcast:
            _log.emit(log_events.BROADCAST_MESSAGE_DROPPED, **log_fields(self._member.group, messages[0]))
        else:
            try:
                await self._nack(queue, messages, failure, 0)
            except OrtooError as error:
                _log.emit(
                    log_events.NACK_FAILED_RETRYING_LOCALLY,
                    **log_fields(self._member.group, messages[0]),
                    reason=str(error),
                )
                return False
            self._member.check_retry_topic()
        ack_all(messages)
        return True

    async def _nack_stuck(self) -> None:
        timeout_s = self._options.timeout_ms / 1000
        stuck = TimeoutError(f"the handler did not return within {timeout_s:g} s")
        while True:
            await self._clock.sleep(timeout_s / 4)
            stuck_before_s = self._clock.monotonic_s() - timeout_s
            for key, (queue, messages, began_s) in list(self._running.items()):
                if began_s < stuck_before_s and not queue.is_dropped:
                    _log.emit(log_events.HANDLER_TIMEOUT_MESSAGE_RETRIED, **log_fields(self._member.group, messages[0]))
                    if await self._nack_or_drop(queue, messages, stuck):
                        self._running.pop(key, None)

    # ordered processing

    async def _handle_in_order(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Process messages one at a time until each succeeds or is parked.

        Each message is committed after its success. With `manual_commit`, the handler's verdict commits or repeats the
        processed messages instead.
        """
        waiting = list(messages)
        try:
            while waiting and not queue.is_dropped:
                if self._member.can_process(queue):
                    waiting = await self._handle_first(queue, waiting)
                else:
                    await self._pause(self._pause_ms)
            for dropped in [one for one in self._uncommitted if one.is_dropped]:
                del self._uncommitted[dropped]
        finally:
            self._release_slot(queue)

    async def _handle_first(self, queue: ProcessQueue, waiting: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Process the first `waiting` message, and pause if it must be retried; returns the remaining messages."""
        first = waiting[0]
        self._attempts.start(first)
        async with self._calls.ended([first]) as end:
            wait_ms: float | None = None
            if end.failure is not None:
                wait_ms = await self._handle_failure(queue, first, end.failure)
                if wait_ms is not None:
                    remaining, wait_ms = waiting, max(wait_ms, SUSPEND_MIN_MS)
                else:  # it is parked
                    first.ack()
                    remaining = waiting[1:]
            else:
                self._attempts.forget(first)
                remaining = self._apply_verdict(end.result, queue, waiting)
                if len(remaining) >= len(waiting):  # rolled back
                    wait_ms = self._pause_ms
        if wait_ms is not None:
            await self._pause(wait_ms)
        return remaining

    def _apply_verdict(
        self, verdict: object, queue: ProcessQueue, waiting: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Commit the first message, which was processed; returns the remaining messages, all of them if rolled back.

        With `manual_commit` the result of its handler decides.
        """
        if not self._options.manual_commit:
            waiting[0].ack()
            return waiting[1:]
        uncommitted = self._uncommitted.setdefault(queue, [])
        uncommitted.append(waiting[0])
        if verdict is CommitVerdict.ROLLBACK:
            return self._uncommitted.pop(queue) + waiting[1:]
        if verdict is CommitVerdict.COMMIT:
            ack_all(self._uncommitted.pop(queue))
        return waiting[1:]

    async def _handle_failure(
        self, queue: ProcessQueue, message: ReceivedMessage, failure: BaseException
    ) -> float | None:
        """Nack a failed message; returns the delay of the next attempt in ms, or None when it was parked."""
        where = log_fields(self._member.group, message)
        if not isinstance(failure, RetryLater):
            _log.emit(log_events.HANDLER_FAILED_QUEUE_PAUSED, exc_info=failure, **where)
        attempts = self._attempts.attempt_count(message)
        if not isinstance(failure, RetryLater) or failure.count_attempt:
            self._attempts.store(message, attempts)
        if self._member.settings.broadcast:
            return self._drop_failed(failure, attempts, where)
        try:
            answer = await self._nack(queue, [message], failure, attempts)
        except OrtooError as error:
            _log.emit(log_events.NACK_FAILED_RETRYING_LOCALLY, reason=str(error), **where)
            return self._pause_ms
        if answer.parked:
            self._attempts.forget(message)
            return None
        if isinstance(failure, RetryLater) and (failure.delay_ms is not None or failure.delay_level):
            return float(answer.delay_ms)
        return self._options.suspend_ms if self._options.suspend_ms is not None else float(answer.delay_ms)

    def _drop_failed(self, failure: BaseException, attempts: int, where: dict[str, object]) -> float | None:
        """The delay in a broadcast, which has no dead letters and no group policy; None = dropped."""
        if 0 < self._options.attempts_max <= attempts:
            _log.emit(log_events.BROADCAST_MESSAGE_DROPPED, **where)
            return None
        if isinstance(failure, RetryLater) and failure.delay_ms is not None:
            return failure.delay_ms
        return self._pause_ms

    @property
    def _pause_ms(self) -> float:
        return SUSPEND_MS if self._options.suspend_ms is None else self._options.suspend_ms

    async def _pause(self, wait_ms: float) -> None:
        await self._clock.sleep(wait_ms / 1000)


def ack_all(messages: Sequence[ReceivedMessage]) -> None:
    """Acknowledge all `messages`."""
    for message in messages:
        message.ack()

"""Gives popped messages to handlers, one by one or in batches, and settles them by the ends of the handlers."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.handlers import RetryLater, log_fields
from ortoo.client.handling.calls import HandlerCalls
from ortoo.client.handling.runs import HandlerRuns
from ortoo.client.pop.outcome import settle
from ortoo.client.pop.popped import PoppedMessage
from ortoo.common.errors import Fenced, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background

_log = get_logger("consumer")


class Popping(Protocol):
    """A consumer that pops messages."""

    _group: str
    _was_answered: bool
    _connection: Connection

    async def pop(self, messages_max: int = 0) -> list[PoppedMessage]:
        """Messages, or none after a while."""

    def _release_unhandled(self, messages: Iterable[PoppedMessage]) -> None:
        """Release messages without an outcome: those of stopped handlers, and those without a handler."""


async def run_handlers(
    consumer: Popping, runs: HandlerRuns, calls: HandlerCalls[PoppedMessage, None], *, pop_max: int, concurrency: int
) -> None:
    """Give each message to a handler, up to `concurrency` at a time. Errors: those of `pop` that no retry mends."""
    calls.trace(consumer._connection.telemetry, consumer._group)
    slots = asyncio.Semaphore(concurrency)
    waiting: deque[PoppedMessage] = deque()
    given: dict[PoppedMessage, None] = {}

    async def take(background: Background) -> None:
        try:
            while True:
                await slots.acquire()
                if not waiting:
                    waiting.extend(await _pop_until_answered(consumer, pop_max))
                message = waiting.popleft()
                given[message] = None
                background.spawn("handle", handle(message))
        finally:
            consumer._release_unhandled(waiting)

    async def handle(message: PoppedMessage) -> None:
        try:
            async with calls.ended(message) as end:
                _log_failure(consumer._group, message, end.failure)
                await settle_ended(consumer._group, message, end.failure)
            del given[message]
        finally:
            slots.release()

    try:
        await runs.run(calls, take)
    finally:
        consumer._release_unhandled(given)


async def run_batch_handlers(
    consumer: Popping,
    runs: HandlerRuns,
    calls: HandlerCalls[Sequence[PoppedMessage], None],
    *,
    pop_max: int,
    concurrency: int,
) -> None:
    """Give up to `pop_max` messages to each call of a handler. Errors: as `run_handlers`."""
    calls.trace(consumer._connection.telemetry, consumer._group)
    slots = asyncio.Semaphore(concurrency)
    given: dict[PoppedMessage, None] = {}

    async def take(background: Background) -> None:
        while True:
            await slots.acquire()
            messages = await _pop_until_answered(consumer, pop_max)
            given.update(dict.fromkeys(messages))
            background.spawn("handle", handle(messages))

    async def handle(messages: Sequence[PoppedMessage]) -> None:
        try:
            async with calls.ended(messages) as end:
                unsettled = [one for one in messages if one.offset in one.lease.open_offsets]
                failures: list[BaseException | None] = [None] * len(unsettled)
                if (failure := end.failure) is not None and unsettled:
                    _log_failure(consumer._group, unsettled[0], failure)
                    failures = [calls.failure_of_each(one, failure) for one in unsettled]
                pairs = zip(unsettled, failures, strict=True)
                await asyncio.gather(*(settle_ended(consumer._group, one, why) for one, why in pairs))
            for one in messages:
                del given[one]
        finally:
            slots.release()

    try:
        await runs.run(calls, take)
    finally:
        consumer._release_unhandled(given)


async def _pop_until_answered(consumer: Popping, count: int) -> list[PoppedMessage]:
    """Pop up to `count` messages, at least one. Retries while no snode answers or the group is disabled."""
    connection, failures = consumer._connection, 0
    while True:
        try:
            popped = await consumer.pop(count)
            consumer._was_answered, failures = True, 0
            if popped:
                return popped
        except OrtooError as error:
            if not error.retriable and not (consumer._was_answered and error.retry_after_ms):
                raise
            connection.retry_log.emit(_log, log_events.POP_FAILED_RETRYING, error)
            await connection.back_off(failures)
            failures += 1


def _log_failure(group: str, message: PoppedMessage, failure: BaseException | None) -> None:
    if failure is not None and not isinstance(failure, RetryLater):
        _log.emit(log_events.HANDLER_FAILED_WILL_REDELIVER, exc_info=failure, **log_fields(group, message))


async def settle_ended(group: str, message: PoppedMessage, failure: BaseException | None) -> None:
    """Settle a message whose handler has ended. If this fails, its lease ends."""
    where: dict[str, Any] = log_fields(group, message)
    try:
        await settle(message, failure)
    except Fenced as late:
        _log.emit(log_events.HANDLER_LEASE_EXPIRED, reason=str(late), **where)
    except OrtooError as error:
        _log.emit(log_events.ACK_FAILED, reason=str(error), **where)

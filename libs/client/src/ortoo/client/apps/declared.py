"""The consumers of a program: a handler with its subscription, and the calls of the handler with its dependencies."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin

from ortoo.client import log_events
from ortoo.client.apps.codecs import SCHEMA_ID, BodyCodec, Undecodable, codec_of
from ortoo.client.apps.providers import parameters_of, result_of
from ortoo.client.apps.retries import RetryRules
from ortoo.client.core.filters import Filter
from ortoo.client.core.handlers import PARK_LEVEL, RetryLater
from ortoo.client.handling.calls import HandlerCalls, is_async
from ortoo.client.pop.consumer import PopConsumer
from ortoo.client.pop.handling import settle_ended
from ortoo.client.pop.popped import PoppedMessage
from ortoo.client.pop.settings import PopSettings
from ortoo.common.errors import Invalid, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.randomness import Randomness

REPLY_WAIT_S = 30.0
"""Longest time for which a reply waits for its requester. Meanwhile no other message takes the place of its message.

A request may have a timeout of an hour. A few requesters that have ended would stop the program for that time.
"""
CHANCES = 1 << 20
Around = Sequence[Callable[[Sequence[PoppedMessage]], AbstractAsyncContextManager[None]]]
_log = get_logger("app")


@dataclass(frozen=True, slots=True)
class DeclaredConsumer:
    """One handler with its subscription."""

    handler: Callable[..., object]
    topic: str
    group: str
    filter: Filter
    retries: RetryRules
    concurrency: int
    batch_messages_max: int
    """0 = the handler gets single messages."""
    timeout_s: float | None
    settings: PopSettings | None

    def __post_init__(self) -> None:
        if self.batch_messages_max < 0:
            raise Invalid(
                f"{self.batch_messages_max}; expected 1 or more, or 0 for single messages", field="batch_messages_max"
            )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise Invalid(f"{self.timeout_s:g} s; expected a time above 0, or None for no limit", field="timeout")
        self._kinds()

    @property
    def pop_settings(self) -> PopSettings:
        """The settings for popping; the retries set the number of attempts if they are given."""
        settings = self.settings or PopSettings()
        return replace(settings, attempts_max=self.retries.attempts_max or settings.attempts_max)

    def run(self, consumer: PopConsumer, calls: HandlerCalls[Any, None]) -> Awaitable[None]:
        """Handle the messages of `consumer` with the calls of `bind`."""
        if not self.batch_messages_max:
            return consumer.run(calls, concurrency=self.concurrency)
        return consumer.run_batches(calls, batch_messages_max=self.batch_messages_max, concurrency=self.concurrency)

    def bind(self, provided: dict[Any, Any], around: Around, randomness: Randomness) -> HandlerCalls[Any, None]:
        """The calls of the handler with its dependencies. Errors: Invalid for a parameter without a provider."""
        kinds = self._kinds()
        dependencies = {name: provided[kind] for name, kind in kinds.items() if kind in provided}
        messages = [name for name, kind in kinds.items() if kind is PoppedMessage]
        bodies = [name for name in kinds if name not in dependencies and name not in messages]
        if len(bodies) > 1:
            name = getattr(self.handler, "__qualname__", repr(self.handler))
            raise Invalid(
                f"{name} takes {' and '.join(bodies)}, but only one can be the body; add a provider for the others"
            )
        codecs = {name: codec_of(kinds[name]) for name in bodies}

        def failure_of(message: PoppedMessage, failure: BaseException) -> BaseException:
            return self.retries.failure_of(message.attempt, failure, randomness.below(CHANCES) / CHANCES)

        is_batch = bool(self.batch_messages_max)
        call: Callable[[Any], tuple[Any, list[Any]]] = self._single_call(dependencies, messages, codecs)
        finish: Callable[[Any, Any, list[Any]], Awaitable[None]] = self._finish_single()
        if is_batch:
            call, finish = self._batch_call(dependencies, messages, codecs), self._park_undecodable

        async def handle(given: Any) -> None:
            result, rest = call(given)
            await finish(given, await result if inspect.isawaitable(result) else result, rest)

        def handle_in_thread(given: Any) -> Awaitable[None] | None:
            result, rest = call(given)
            return None if result is None and not rest else finish(given, result, rest)

        return HandlerCalls(
            handle if is_async(self.handler) else handle_in_thread,
            threads=self.concurrency,
            failure_of=_unchanged if is_batch else failure_of,
            failure_of_each=failure_of,
            timeout_s=self.timeout_s,
            around=[_entering(one, is_batch=is_batch) for one in around],
        )

    def _kinds(self) -> dict[str, Any]:
        """The types of the parameters; for batches those of the elements of lists. Errors: Invalid."""
        kinds = parameters_of(self.handler)
        if self.batch_messages_max:
            is_list = {name: get_origin(kind) in (list, Sequence) for name, kind in kinds.items()}
            if not any(is_list.values()):
                name = getattr(self.handler, "__qualname__", repr(self.handler))
                raise Invalid(
                    f"{name} takes batches; annotate its bodies as a list, such as list[bytes]", field="batch"
                )
            kinds = {name: get_args(kind)[0] if is_list[name] else kind for name, kind in kinds.items()}
        return kinds

    def _single_call(
        self, dependencies: dict[str, Any], messages: list[str], codecs: Mapping[str, BodyCodec[Any]]
    ) -> Callable[[PoppedMessage], tuple[Any, list[Any]]]:
        def call(message: PoppedMessage) -> tuple[Any, list[Any]]:
            try:
                values = {name: _decoded(codec, message) for name, codec in codecs.items()}
            except Undecodable as error:
                raise RetryLater(PARK_LEVEL) from error
            return self.handler(**dependencies, **dict.fromkeys(messages, message), **values), []

        return call

    def _batch_call(
        self, dependencies: dict[str, Any], messages: list[str], codecs: Mapping[str, BodyCodec[Any]]
    ) -> Callable[[Sequence[PoppedMessage]], tuple[Any, list[Any]]]:
        def call(batch: Sequence[PoppedMessage]) -> tuple[Any, list[Any]]:
            decoded, undecodable = list[PoppedMessage](), list[tuple[PoppedMessage, Undecodable]]()
            values: dict[str, list[Any]] = {name: [] for name in codecs}
            for message in batch:
                try:
                    row = {name: _decoded(codec, message) for name, codec in codecs.items()}
                except Undecodable as error:
                    undecodable.append((message, error))
                    continue
                decoded.append(message)
                for name, value in row.items():
                    values[name].append(value)
            if not decoded:
                return None, undecodable
            return self.handler(**dependencies, **dict.fromkeys(messages, decoded), **values), undecodable

        return call

    def _finish_single(self) -> Callable[[PoppedMessage, Any, list[Any]], Awaitable[None]]:
        replied = result_of(self.handler)
        reply_codec = cache(lambda: codec_of(replied))  # only for requests: other results may be of any type

        async def finish(message: PoppedMessage, result: Any, _: list[Any]) -> None:
            """Reply with the result of a handler whose annotation names a type."""
            if inspect.isawaitable(result):  # of a plain function, such as a decorated handler
                result = await result
            if replied is not None and result is not None and message.request is not None:
                await _reply(message, reply_codec().encode(result))

        return finish

    async def _park_undecodable(
        self, _: Sequence[PoppedMessage], result: Any, undecodable: list[tuple[PoppedMessage, Undecodable]]
    ) -> None:
        """Park the messages of a handled batch whose bodies the handler could not get."""
        if inspect.isawaitable(result):
            await result
        for message, error in undecodable:
            park = RetryLater(PARK_LEVEL)
            park.__cause__ = error
            await settle_ended(self.group, message, park)


def _unchanged(_: object, failure: BaseException) -> BaseException:
    return failure


def _decoded(codec: BodyCodec[Any], message: PoppedMessage) -> Any:
    return codec.read(message.body, message.properties.get(SCHEMA_ID, ""))


def _entering(
    enter: Callable[[Sequence[PoppedMessage]], AbstractAsyncContextManager[None]], *, is_batch: bool
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    return enter if is_batch else lambda message: enter((message,))


async def _reply(message: PoppedMessage, body: bytes) -> None:
    """Reply to a request. Without an answer of the requester, the message counts as processed, too."""
    try:
        async with asyncio.timeout(REPLY_WAIT_S):
            await message.reply(body)
    except (Unavailable, TimeoutError) as failure:
        late = f"the requester did not confirm the reply within {REPLY_WAIT_S:g} s"
        error = failure if isinstance(failure, Unavailable) else late
        _log.emit(log_events.REPLY_FAILED, topic=message.topic, message_id=message.message_id, reason=str(error))

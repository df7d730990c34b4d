"""A program: handlers of topics, producers and their dependencies, declared once and run together.

A program with one handler:

    from datetime import timedelta

    from ortoo.client import App

    app = App("billing")


    @app.consumer("orders", retries=(timedelta(minutes=10), timedelta(hours=1)))
    async def charge(order: Order, bank: Bank) -> None:
        await bank.charge(order.number, order.cents)


    if __name__ == "__main__":
        app.run("localhost:8081")
"""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Generic, TypeVar, cast

from ortoo.client import log_events
from ortoo.client.app import Client, connect
from ortoo.client.apps.codecs import SCHEMA_ID, BodyCodec, Undecodable, codec_of
from ortoo.client.apps.providers import Provider, Providers, parameters_of, result_of
from ortoo.client.apps.running import RunningApp, mark_stopped, watch
from ortoo.client.apps.schedules import DeclaredSchedule
from ortoo.client.core.closed import ClientClosed
from ortoo.client.core.filters import Filter
from ortoo.client.core.handlers import PARK_LEVEL, RetryLater
from ortoo.client.core.queues import Receipt
from ortoo.client.handling.calls import HandlerCalls, check_handler, is_async
from ortoo.client.handling.closed_loops import ignore_closed_loops
from ortoo.client.handling.runs import FINISH_TIMEOUT_S
from ortoo.client.handling.signals import stopping_signals
from ortoo.client.pop.popped import PoppedMessage
from ortoo.client.pop.settings import PopSettings
from ortoo.client.produce.producer import Producer
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.records.message import Message

T = TypeVar("T")
R = TypeVar("R")
Handler = TypeVar("Handler", bound=Callable[..., object])
REPLY_WAIT_S = 30.0
"""Longest time for which a reply waits for its requester. Meanwhile no other message takes the place of its message.

A request may have a timeout of an hour. A few requesters that have ended would stop the program for that time.
"""
_log = get_logger("app")


class TopicProducer(Generic[T]):
    """Sends values of one type to one topic while its program runs. Made by `App.producer`."""

    def __init__(self, topic: str, codec: BodyCodec[T], settings: ProducerSettings) -> None:
        self.topic = topic
        self._codec = codec
        self._settings = settings
        self._producer: Producer | None = None

    async def send(self, value: T, template: Message | None = None) -> Receipt:
        """Send a value; it is stored when this returns. Tag, keys, times and other fields are copied from `template`.

        Errors: ClientClosed while the program does not run, otherwise as `Producer.send`.
        """
        return await self._open_producer().send(self._message(value, template))

    async def request(
        self, value: T, reply_kind: type[R], *, timeout_s: float = 3.0, template: Message | None = None
    ) -> R:
        """Send a value as a request; returns the reply, decoded to `reply_kind`. `template` is used as by `send`.

        Errors: ClientClosed while the program does not run, Invalid for a reply of another type, otherwise as
        `Producer.request`.
        """
        codec: BodyCodec[R] = codec_of(reply_kind)
        reply = await self._open_producer().request(self._message(value, template), timeout_s=timeout_s)
        try:
            return codec.decode(reply.body)
        except Undecodable as error:
            name = getattr(reply_kind, "__qualname__", repr(reply_kind))
            raise Invalid(f"the reply is no {name}: {error}; agree on one type with the replier") from error

    def _open_producer(self) -> Producer:
        if self._producer is None:
            raise ClientClosed(f"the program that sends to {self.topic} is not running; enter `App.running` first")
        return self._producer

    def _message(self, value: T, template: Message | None) -> Message:
        body, own = self._codec.encode(value), self._codec.properties()
        if template is None:
            return Message(body, properties=own)
        return template.replace(body=body, properties={**template.properties, **own})

    @asynccontextmanager
    async def open(self, mq: Client) -> AsyncIterator[None]:
        """Send through `mq` until the block ends."""
        async with mq.producer(self.topic, self._settings) as self._producer:
            try:
                yield
            finally:
                self._producer = None


@dataclass(frozen=True, slots=True)
class _DeclaredConsumer:
    """One handler with its subscription."""

    handler: Callable[..., object]
    topic: str
    group: str
    filter: Filter
    retries: Sequence[timedelta] | None
    concurrency: int
    settings: PopSettings | None

    def bind(self, provided: dict[Any, Any]) -> HandlerCalls[PoppedMessage, None]:
        """The calls of the handler with its dependencies. Errors: Invalid for a parameter without a provider."""
        parameters = parameters_of(self.handler)
        dependencies = {name: provided[kind] for name, kind in parameters.items() if kind in provided}
        messages = [name for name, kind in parameters.items() if kind is PoppedMessage]
        bodies = [name for name in parameters if name not in dependencies and name not in messages]
        if len(bodies) > 1:
            name = getattr(self.handler, "__qualname__", repr(self.handler))
            raise Invalid(
                f"{name} takes {' and '.join(bodies)}, but only one can be the body; add a provider for the others"
            )
        codecs = {name: codec_of(parameters[name]) for name in bodies}

        def arguments(message: PoppedMessage) -> dict[str, Any]:
            try:
                schema_id = message.properties.get(SCHEMA_ID, "")
                values = {name: codec.read(message.body, schema_id) for name, codec in codecs.items()}
            except Undecodable as error:
                raise RetryLater(PARK_LEVEL) from error
            return dependencies | dict.fromkeys(messages, message) | values

        replied = result_of(self.handler)
        reply_codec = cache(lambda: codec_of(replied))  # only for requests: other results may be of any type

        async def finish(message: PoppedMessage, result: Any) -> None:
            """Reply with the result of a handler whose annotation names a type."""
            if inspect.isawaitable(result):  # of a plain function, such as a decorated handler
                result = await result
            if replied is not None and result is not None and message.request is not None:
                await _reply(message, reply_codec().encode(result))

        async def handle(message: PoppedMessage) -> None:
            await finish(message, await cast("Awaitable[Any]", self.handler(**arguments(message))))

        def handle_in_thread(message: PoppedMessage) -> Awaitable[None] | None:
            result = self.handler(**arguments(message))
            return None if result is None else finish(message, result)

        chosen = handle if is_async(self.handler) else handle_in_thread
        return HandlerCalls(chosen, threads=self.concurrency, failure_of=self._with_delay)

    @property
    def pop_settings(self) -> PopSettings:
        """The settings for popping; `retries` sets the number of attempts if it is given."""
        settings = self.settings or PopSettings()
        return settings if self.retries is None else replace(settings, attempts_max=len(self.retries) + 1)

    def _with_delay(self, message: PoppedMessage, failure: BaseException) -> BaseException:
        """The failure with the delay of `retries`; without one the policy of consumer and group applies."""
        attempt = message.attempt
        if isinstance(failure, RetryLater) or self.retries is None or attempt > len(self.retries):
            return failure  # also after the last attempt of `pop_settings`
        retry = RetryLater(delay_ms=self.retries[attempt - 1] / timedelta(milliseconds=1))
        retry.__cause__ = failure
        return retry


async def _reply(message: PoppedMessage, body: bytes) -> None:
    """Reply to a request. Without an answer of the requester, the message counts as processed, too."""
    try:
        async with asyncio.timeout(REPLY_WAIT_S):
            await message.reply(body)
    except (Unavailable, TimeoutError) as failure:
        late = f"the requester did not confirm the reply within {REPLY_WAIT_S:g} s"
        error = failure if isinstance(failure, Unavailable) else late
        _log.emit(log_events.REPLY_FAILED, topic=message.topic, message_id=message.message_id, reason=str(error))


class App:
    """A declared program: its handlers, producers and providers. Nothing happens before it runs.

    An app may run several times, one run after the other.
    """

    def __init__(self, group: str) -> None:
        """`group` is the consumer group of all consumers that name no group."""
        self.group = group
        self._providers = Providers()
        self._consumers: list[_DeclaredConsumer] = []
        self._producers: list[TopicProducer[Any]] = []
        self._schedules: list[DeclaredSchedule] = []

    def consumer(
        self,
        topic: str,
        *,
        group: str = "",
        filter: Filter = "*",
        retries: Sequence[timedelta] | None = None,
        concurrency: int = 16,
        settings: PopSettings | None = None,
    ) -> Callable[[Handler], Handler]:
        """Let the decorated function handle each message of `topic`, up to `concurrency` at a time.

        One parameter is the body, decoded to its annotated type. A parameter of type `PoppedMessage` is the message
        itself; other parameters come from providers. The message is acknowledged when the function returns. When the
        function raises, the message is delivered again after each delay in `retries` and then parked. `None` uses the
        group's retry policy. A body that cannot be decoded is parked at once.

        If the message is a request, the value that the function returns is the reply, encoded as the annotated type of
        the result. A function that returns None, or has no such annotation, sends no reply.
        """

        def declare(handler: Handler) -> Handler:
            check_handler(handler, concurrency)
            parameters_of(handler)
            declared = _DeclaredConsumer(handler, topic, group or self.group, filter, retries, concurrency, settings)
            self._consumers.append(declared)
            return handler

        return declare

    def cron(
        self,
        expression: str,
        *,
        timezone: str = "",
        name: str = "",
        topic: str = "",
        catch_up: str = "last",
        retries: Sequence[timedelta] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Call the decorated function at each time of five cron fields in `timezone` (empty = UTC).

        The servers keep the schedule, so that one process of the program is called for each occurrence. A failed call
        is retried as in `consumer`. `name` is by default that of the function, `topic` the program's group and
        "-schedules". Occurrences that are late, for example because no process ran, wait as messages. Those that the
        servers could not send follow `catch_up`: last, skip or all. A schedule whose declaration is removed continues
        until it is deleted.
        """
        return self._schedule(name, topic, retries, cron=expression, timezone=timezone, catch_up=catch_up)

    def every(
        self,
        period: timedelta,
        *,
        name: str = "",
        topic: str = "",
        catch_up: str = "last",
        retries: Sequence[timedelta] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Call the decorated function each time `period` has passed, at least 1 s; otherwise as `cron`."""
        return self._schedule(name, topic, retries, every=period, catch_up=catch_up)

    def _schedule(
        self, name: str, topic: str, retries: Sequence[timedelta] | None, **rule: Any
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            own_name = name or getattr(handler, "__name__", "")
            schedule = DeclaredSchedule(topic or f"{self.group}-schedules", own_name, **rule)
            if any((one.topic, one.name) == (schedule.topic, own_name) for one in self._schedules):
                raise Invalid(f"two schedules of topic {schedule.topic} are named {own_name!r}; name one", field="name")
            group = f"{self.group}-{own_name}"
            self.consumer(schedule.topic, group=group, filter=own_name, retries=retries, concurrency=1)(handler)
            self._schedules.append(schedule)
            return handler

        return declare

    def producer(self, topic: str, kind: type[T], settings: ProducerSettings | None = None) -> TopicProducer[T]:
        """A producer of values of `kind`, open while the program runs."""
        producer: TopicProducer[T] = TopicProducer(topic, codec_of(kind), settings or ProducerSettings())
        self._producers.append(producer)
        return producer

    def provide(self, provider: Provider) -> Provider:
        """Register the decorated function as the provider of its return type; it is called once per run.

        Code after its `yield` runs when the program ends. Errors: Invalid.
        """
        self._providers.add(provider)
        return provider

    def override(self, value: object, kind: Any = None) -> None:
        """In tests: use `value` for the type `kind` (None = the value's type) instead of calling a provider."""
        self._providers.set_value(value, kind or type(value))

    @asynccontextmanager
    async def running(self, mq: Client, *, finish_timeout_s: float = 0.0) -> AsyncIterator[RunningApp]:
        """Run until the block ends. Then no message is taken, and running handlers get `finish_timeout_s` to finish.

        Messages of handlers that have not finished by then are released without counting an attempt. The value of the
        block tells a health check whether the program still runs.

        Errors: Invalid for a missing dependency, or the error that ended a consumer, as an ExceptionGroup.
        """
        running = RunningApp()
        async with AsyncExitStack() as stack:
            stack.callback(mark_stopped, running)
            for producer in self._producers:
                await stack.enter_async_context(producer.open(mq))
            provided = await self._providers.make(stack)
            handlers = [declared.bind(provided) for declared in self._consumers]
            for schedule in self._schedules:
                await schedule.create(mq)
            consumers = [
                await stack.enter_async_context(mq.pop_consumer(one.group, one.topic, one.filter, one.pop_settings))
                for one in self._consumers
            ]
            background = await stack.enter_async_context(Background(f"program {self.group}"))
            for declared, consumer, calls in zip(self._consumers, consumers, handlers, strict=True):
                run = consumer.run(calls, concurrency=declared.concurrency)
                background.spawn(declared.topic, watch(running, run))
            yield running
            if finish_timeout_s > 0 and consumers:
                async with Background("stop") as stopping:
                    await asyncio.wait([stopping.spawn("stop", it.stop(finish_timeout_s)) for it in consumers])

    def run(
        self,
        addresses: str | Sequence[str] = "",
        *,
        finish_timeout_s: float = FINISH_TIMEOUT_S,
        **options: Any,
    ) -> None:
        """Run until SIGTERM or Ctrl-C; `options` are those of `connect`.

        After the signal, no message is taken, and running handlers get `finish_timeout_s` to finish. Messages of
        handlers that have not finished by then are released without counting an attempt. A second signal ends the
        process at once. If a consumer cannot run, the process ends with exit code 1 and a line with the reason.
        """

        async def until_stopped() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            ignore_closed_loops(loop)
            with stopping_signals(lambda _: loop.call_soon_threadsafe(stop.set)):
                async with connect(addresses, **options) as mq, self.running(mq, finish_timeout_s=finish_timeout_s):
                    await stop.wait()

        try:
            asyncio.run(until_stopped())
        except (OrtooError, BaseExceptionGroup) as error:
            reasons = list(_reasons(error))
            if None in reasons:
                raise
            sys.exit("\n".join(dict.fromkeys(f"error: {self.group}: {reason}" for reason in reasons)))


def _reasons(error: BaseException) -> Iterator[str | None]:
    """The text of each error that a user can correct; None for an error of the program, which needs its traceback."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _reasons(one)
    else:
        yield str(error) if isinstance(error, OrtooError) else None

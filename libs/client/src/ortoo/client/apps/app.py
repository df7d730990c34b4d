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
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from ortoo.client.app import Client, connect
from ortoo.client.apps.codecs import codec_of
from ortoo.client.apps.declared import DeclaredConsumer
from ortoo.client.apps.middleware import HandlerMiddleware, SendMiddleware, entering
from ortoo.client.apps.providers import Provider, Providers, parameters_of
from ortoo.client.apps.retries import Delays, DelaysByError, RetryRules
from ortoo.client.apps.running import RunningApp, mark_stopped, mark_stopping, watch
from ortoo.client.apps.schedules import DeclaredSchedule
from ortoo.client.apps.topic_producer import TopicProducer
from ortoo.client.core.filters import Filter
from ortoo.client.handling.calls import check_handler
from ortoo.client.handling.closed_loops import ignore_closed_loops
from ortoo.client.handling.runs import FINISH_TIMEOUT_S
from ortoo.client.handling.signals import stopping_signals
from ortoo.client.pop.settings import PopSettings
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.process.background import Background

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., object])


class App:
    """A declared program: its handlers, producers and providers. Nothing happens before it runs.

    An app may run several times, one run after the other.
    """

    def __init__(self, group: str, *, restarts: Sequence[timedelta] = ()) -> None:
        """`group` is the consumer group of all consumers that name no group.

        `restarts` are the delays after which a consumer that has failed, for example because its topic was deleted, is
        started again. After the last one, or without any, the failure ends the program.
        """
        self.group = group
        self._restarts = restarts
        self._around_handlers: list[Callable[..., AbstractAsyncContextManager[Any]]] = []
        self._around_sends: list[Callable[..., AbstractAsyncContextManager[Any]]] = []
        self._providers = Providers()
        self._consumers: list[DeclaredConsumer] = []
        self._producers: list[TopicProducer[Any]] = []
        self._schedules: list[DeclaredSchedule] = []

    def consumer(
        self,
        topic: str,
        *,
        group: str = "",
        filter: Filter = "*",
        retries: Delays | DelaysByError | None = None,
        retry_jitter: float = 0.0,
        timeout: timedelta | None = None,
        batch_messages_max: int = 0,
        concurrency: int = 16,
        settings: PopSettings | None = None,
    ) -> Callable[[Handler], Handler]:
        """Let the decorated function handle each message of `topic`, up to `concurrency` at a time.

        One parameter is the body, decoded to its annotated type. A parameter of type `PoppedMessage` is the message
        itself; other parameters come from providers. The message is acknowledged when the function returns. When the
        function raises, the message is delivered again after each delay in `retries` and then parked. `None` uses the
        group's retry policy. A body that cannot be decoded is parked at once.

        `retries` may also map types of exceptions to delays; the first type that matches counts. An exception without a
        type in it uses the group's retry policy. Each delay changes randomly by up to the part `retry_jitter` of it. A
        call that takes longer than `timeout` is a failed attempt: a coroutine function is cancelled, and a thread
        continues without effect on the message.

        With `batch_messages_max`, the function gets up to this number of messages at once, those that are available.
        Their bodies are a parameter such as `list[Order]`, the messages `list[PoppedMessage]`. If the function raises,
        all of them are delivered again, except those that it has acknowledged, nacked or parked itself.

        If the message is a request, the value that the function returns is the reply, encoded as the annotated type of
        the result. A function that returns None, or has no such annotation, sends no reply.
        """

        def declare(handler: Handler) -> Handler:
            check_handler(handler, concurrency)
            parameters_of(handler)
            timeout_s = timeout.total_seconds() if timeout is not None else None
            rules = RetryRules(retries, retry_jitter)
            to = (handler, topic, group or self.group, filter)
            self._consumers.append(DeclaredConsumer(*to, rules, concurrency, batch_messages_max, timeout_s, settings))
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
        around = self._around_sends
        producer: TopicProducer[T] = TopicProducer(topic, codec_of(kind), settings or ProducerSettings(), around)
        self._producers.append(producer)
        return producer

    def middleware(self, function: HandlerMiddleware) -> HandlerMiddleware:
        """Let the decorated `async def` function run around each call of a handler, which happens at its `yield`.

        It gets the messages of the call, one or a batch. An exception of the handler is raised at the `yield`. Context
        variables that it sets are visible in the handler. The first declared function is the outermost. Errors:
        Invalid.
        """
        self._around_handlers.append(entering(function))
        return function

    def send_middleware(self, function: SendMiddleware) -> SendMiddleware:
        """Let the decorated `async def` function run around each send and request of the program's producers.

        It gets the message and yields the message to send, the same or another. Errors: Invalid.
        """
        self._around_sends.append(entering(function))
        return function

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
            connection = mq._connection
            handlers = [
                declared.bind(provided, self._around_handlers, connection.randomness) for declared in self._consumers
            ]
            for schedule in self._schedules:
                await schedule.create(mq)
            consumers = [
                await stack.enter_async_context(mq.pop_consumer(one.group, one.topic, one.filter, one.pop_settings))
                for one in self._consumers
            ]
            background = await stack.enter_async_context(Background(f"program {self.group}"))
            for declared, consumer, calls in zip(self._consumers, consumers, handlers, strict=True):
                run = partial(declared.run, consumer, calls)
                work = watch(running, declared.topic, run, self._restarts, connection.clock)
                background.spawn(declared.topic, work)
            yield running
            mark_stopping(running)
            if finish_timeout_s > 0 and consumers:
                async with Background("stop") as stopping:
                    await asyncio.wait([stopping.spawn("stop", it.stop(finish_timeout_s)) for it in consumers])

    def run(
        self,
        addresses: str | Sequence[str] = "",
        *,
        finish_timeout_s: float = FINISH_TIMEOUT_S,
        health_port: int | None = None,
        **options: Any,
    ) -> None:
        """Run until SIGTERM or Ctrl-C; `options` are those of `connect`.

        After the signal, no message is taken, and running handlers get `finish_timeout_s` to finish. Messages of
        handlers that have not finished by then are released without counting an attempt. A second signal ends the
        process at once. If a consumer cannot run, the process ends with exit code 1 and a line with the reason.

        With `health_port`, HTTP requests to this port are answered with status 200 while the program runs.
        """

        async def until_stopped() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            ignore_closed_loops(loop)
            with stopping_signals(lambda _: loop.call_soon_threadsafe(stop.set)):
                async with AsyncExitStack() as stack:
                    mq = await stack.enter_async_context(connect(addresses, **options))
                    program = await stack.enter_async_context(self.running(mq, finish_timeout_s=finish_timeout_s))
                    if health_port is not None:
                        await stack.enter_async_context(program.serve_health(health_port))
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

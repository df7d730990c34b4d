"""A program: handlers of topics, producers and what they need, declared once and run together.

app = App("billing")

@app.consumer("orders", retries=(timedelta(minutes=10), timedelta(hours=1)))
async def charge(order: Order, bank: Bank) -> None:
    await bank.charge(order.number, order.cents)

if __name__ == "__main__":
    app.run("localhost:8081")
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ortoo.client.app import Client, connect
from ortoo.client.apps.codecs import BodyCodec, Undecodable, codec_of
from ortoo.client.apps.providers import Provider, Providers, parameters_of
from ortoo.client.core.closed import Closed
from ortoo.client.core.filters import Filter
from ortoo.client.core.handlers import PARK_LEVEL, RetryLater
from ortoo.client.core.place import Receipt
from ortoo.client.pop.consumer import PopHandler, PopSettings
from ortoo.client.pop.popped import PoppedMessage
from ortoo.client.produce.producer import Producer
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.errors import Invalid
from ortoo.common.process.background import Background
from ortoo.common.records.message import Message

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[None]])


class TopicProducer(Generic[T]):
    """Sends values of one type to one topic while its program runs. Made by `App.producer`."""

    def __init__(self, topic: str, codec: BodyCodec[T], settings: ProducerSettings) -> None:
        self.topic = topic
        self._codec = codec
        self._settings = settings
        self._producer: Producer | None = None

    async def send(self, value: T, like: Message | None = None) -> Receipt:
        """Send a value; it is stored when this returns. Tag, keys, times and the rest are those of `like`.

        Errors: Closed while the program does not run; as `Producer.send`.
        """
        if self._producer is None:
            raise Closed(f"the program that sends to {self.topic} does not run; enter `App.running` first")
        body = self._codec.encode(value)
        message = Message(body) if like is None else Message(body, like.tag, like.keys, **like.rare._asdict())
        return await self._producer.send(message)

    @asynccontextmanager
    async def open(self, mq: Client) -> AsyncIterator[None]:
        """Send through `mq` until the block is left."""
        async with mq.producer(self.topic, self._settings) as self._producer:
            try:
                yield
            finally:
                self._producer = None


@dataclass(frozen=True, slots=True)
class _Consumer:
    """One handler, and what it handles."""

    handler: Callable[..., Awaitable[None]]
    topic: str
    group: str
    wanted: Filter
    retries: Sequence[timedelta] | None
    concurrency: int
    settings: PopSettings | None

    def bound(self, made: dict[Any, Any]) -> PopHandler:
        """The handler of popped messages, given what providers made. Errors: Invalid for what nobody provides."""
        parameters = parameters_of(self.handler)
        asked = {name: made[kind] for name, kind in parameters.items() if kind in made}
        messages = [name for name, kind in parameters.items() if kind is PoppedMessage]
        bodies = [name for name in parameters if name not in asked and name not in messages]
        if len(bodies) > 1:
            name = getattr(self.handler, "__qualname__", repr(self.handler))
            raise Invalid(f"{name} takes {' and '.join(bodies)}: one is the body, and nothing provides the other")
        codecs = {name: codec_of(parameters[name]) for name in bodies}

        async def handle(message: PoppedMessage) -> None:
            given = dict.fromkeys(messages, message)
            try:
                values = {name: codec.decode(message.body) for name, codec in codecs.items()}
            except Undecodable as error:
                raise RetryLater(PARK_LEVEL) from error
            try:
                await self.handler(**asked, **given, **values)
            except RetryLater:
                raise
            except Exception as error:
                if (later := self._again(message.attempt)) is None:
                    raise
                raise later from error

        return handle

    @property
    def pop_settings(self) -> PopSettings:
        """How its messages are popped: with the first try and its retries, where it says any."""
        settings = self.settings or PopSettings()
        return settings if self.retries is None else replace(settings, attempts_max=len(self.retries) + 1)

    def _again(self, attempt: int) -> RetryLater | None:
        """When a message comes again that failed for the `attempt`th time; None = as its consumer and group say."""
        if self.retries is None or attempt > len(self.retries):  # then it was the last try of `pop_settings`
            return None
        return RetryLater(delay_ms=self.retries[attempt - 1] / timedelta(milliseconds=1))


class App:
    """A program, declared. Nothing happens before it runs; it may run several times, one after the other."""

    def __init__(self, group: str) -> None:
        """`group` is whose progress its consumers share, unless they name another one."""
        self.group = group
        self._providers = Providers()
        self._consumers: list[_Consumer] = []
        self._producers: list[TopicProducer[Any]] = []

    def consumer(
        self,
        topic: str,
        *,
        group: str = "",
        wanted: Filter = "*",
        retries: Sequence[timedelta] | None = None,
        concurrency: int = 16,
        settings: PopSettings | None = None,
    ) -> Callable[[Handler], Handler]:
        """Let the decorated function handle each message of `topic`, up to `concurrency` at a time.

        Of its parameters one is the body, as the type that it is annotated with; `PoppedMessage` is the message itself;
        others come from providers. A message is acknowledged when the function returns. When it raises, the message
        comes again after `retries`, one after the other, and is parked after the last; None = as the group says. A body
        that is not of its type is parked at once.
        """

        def declare(handler: Handler) -> Handler:
            parameters_of(handler)
            declared = _Consumer(handler, topic, group or self.group, wanted, retries, concurrency, settings)
            self._consumers.append(declared)
            return handler

        return declare

    def producer(self, topic: str, kind: type[T], settings: ProducerSettings | None = None) -> TopicProducer[T]:
        """A producer of values of `kind`, open while the program runs."""
        producer: TopicProducer[T] = TopicProducer(topic, codec_of(kind), settings or ProducerSettings())
        self._producers.append(producer)
        return producer

    def provide(self, provider: Provider) -> Provider:
        """Let the decorated function make what it says that it returns, once, for whoever asks for that type.

        What is behind its `yield` is done when the program ends. Errors: Invalid.
        """
        self._providers.add(provider)
        return provider

    def replace(self, value: object, kind: Any = None) -> None:
        """Provide `value` as a `kind` (None = its own type), instead of what a provider would make: in tests."""
        self._providers.put(value, kind or type(value))

    @asynccontextmanager
    async def running(self, mq: Client) -> AsyncIterator[None]:
        """Run until the block is left; what is being handled then comes again, without counting an attempt.

        Errors: Invalid for what cannot be provided; what ends a consumer, as an ExceptionGroup.
        """
        async with AsyncExitStack() as stack:
            for producer in self._producers:
                await stack.enter_async_context(producer.open(mq))
            made = await self._providers.make(stack)
            handlers = [declared.bound(made) for declared in self._consumers]
            consumers = [
                await stack.enter_async_context(mq.pop_consumer(one.group, one.topic, one.wanted, one.pop_settings))
                for one in self._consumers
            ]
            background = await stack.enter_async_context(Background(f"program {self.group}"))
            for declared, consumer, handle in zip(self._consumers, consumers, handlers, strict=True):
                background.spawn(declared.topic, consumer.run(handle, concurrency=declared.concurrency))
            yield

    def run(self, addresses: str | Sequence[str] = "", **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C; `options` are those of `connect`."""

        async def until_stopped() -> None:
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            async with connect(addresses, **options) as mq, self.running(mq):
                await stop.wait()

        asyncio.run(until_stopped())

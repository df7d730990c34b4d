"""The producers of a program: they send values of one type to one topic while the program runs."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from ortoo.client.app import Client
from ortoo.client.apps.codecs import BodyCodec, Undecodable, codec_of
from ortoo.client.core.closed import ClientClosed
from ortoo.client.core.queues import Receipt
from ortoo.client.produce.producer import Producer
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.errors import Invalid
from ortoo.common.records.message import Message

T = TypeVar("T")
R = TypeVar("R")
Around = Sequence[Callable[[Message], AbstractAsyncContextManager[Message]]]


class TopicProducer(Generic[T]):
    """Sends values of one type to one topic while its program runs. Made by `App.producer`."""

    def __init__(self, topic: str, codec: BodyCodec[T], settings: ProducerSettings, around: Around = ()) -> None:
        self.topic = topic
        self._codec = codec
        self._settings = settings
        self._around = around
        self._producer: Producer | None = None

    async def send(self, value: T, template: Message | None = None) -> Receipt:
        """Send a value; it is stored when this returns. Tag, keys, times and other fields are copied from `template`.

        Errors: ClientClosed while the program does not run, otherwise as `Producer.send`.
        """
        producer = self._open_producer()
        async with AsyncExitStack() as stack:
            return await producer.send(await self._message(value, template, stack))
        raise AssertionError("a middleware of sends must not suppress errors")

    async def request(
        self, value: T, reply_kind: type[R], *, timeout_s: float = 3.0, template: Message | None = None
    ) -> R:
        """Send a value as a request; returns the reply, decoded to `reply_kind`. `template` is used as by `send`.

        Errors: ClientClosed while the program does not run, Invalid for a reply of another type, otherwise as
        `Producer.request`.
        """
        codec: BodyCodec[R] = codec_of(reply_kind)
        producer = self._open_producer()
        async with AsyncExitStack() as stack:
            reply = await producer.request(await self._message(value, template, stack), timeout_s=timeout_s)
        try:
            return codec.decode(reply.body)
        except Undecodable as error:
            name = getattr(reply_kind, "__qualname__", repr(reply_kind))
            raise Invalid(f"the reply is no {name}: {error}; agree on one type with the replier") from error

    def _open_producer(self) -> Producer:
        if self._producer is None:
            raise ClientClosed(f"the program that sends to {self.topic} is not running; enter `App.running` first")
        return self._producer

    async def _message(self, value: T, template: Message | None, stack: AsyncExitStack) -> Message:
        """The message of a value, as the middleware of the program makes it; `stack` ends the middleware."""
        body, own = self._codec.encode(value), self._codec.properties()
        message = Message(body, properties=own)
        if template is not None:
            message = template.replace(body=body, properties={**template.properties, **own})
        for enter in self._around:
            message = await stack.enter_async_context(enter(message))
        return message

    @asynccontextmanager
    async def open(self, mq: Client) -> AsyncIterator[None]:
        """Send through `mq` until the block ends."""
        async with mq.producer(self.topic, self._settings) as self._producer:
            try:
                yield
            finally:
                self._producer = None

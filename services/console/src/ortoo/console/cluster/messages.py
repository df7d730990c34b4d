"""Messages for pages: one message by its place, and the newest of a topic as they arrive."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from ortoo.client import Client, NotFound, OrtooError, Queue, StoredMessage
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock

INTERVAL_S = 0.2
"""Time between two deliveries of arrived messages to a page."""
KEEP_ALIVE_S = 10.0
"""Time after which an empty step is made."""


async def message_at(client: Client, queue: Queue, offset: int) -> StoredMessage:
    """The message at an offset of a queue. Errors: NotFound, OutOfRange, Forbidden."""
    async with aclosing(client.fetch(queue, offset, offset + 1)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for one in batch:
                if one.offset == offset:
                    return StoredMessage(one.message_id, queue, offset, one.stored_at_ms, one.stored_message())
    raise NotFound(f"queue {queue.queue_id} of {queue.enode} has no message at offset {offset}", field="offset")


async def newest_of_topic(client: Client, topic: str, count: int) -> list[StoredMessage]:
    """The newest messages of all queues of a topic, newest first. Errors: NotFound, Forbidden, Unavailable."""
    found = [one async for one in client.admin.tail_last(topic, count, follow=False)]
    return found[::-1]


@dataclass(slots=True)
class Arrived:
    """The messages that arrived since the last delivery."""

    messages: deque[StoredMessage]
    omitted: int = 0
    """Messages that arrived in larger number than a page shows."""
    failure: OrtooError | None = None
    is_ended: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> tuple[Sequence[StoredMessage], int]:
        """The messages, newest first, and the number of those that are left out."""
        self.news.clear()
        taken, omitted = list(self.messages)[::-1], self.omitted
        self.messages.clear()
        self.omitted = 0
        return taken, omitted


async def follow_topic(
    client: Client, topic: str, count: int, clock: Clock, stopping: asyncio.Event
) -> AsyncIterator[tuple[Sequence[StoredMessage], int]]:
    """The newest `count` messages, and then those that arrive, at most `count` in each step, newest first.

    The second value is the number of messages that a step leaves out. The iterator yields empty steps while nothing
    arrives, so that its reader notices the end of a connection. It ends when `stopping` is set.

    Errors: NotFound, Forbidden, Unavailable.
    """
    arrived = Arrived(deque(maxlen=count))

    async def read() -> None:
        try:
            async with aclosing(client.admin.tail_last(topic, count, follow=True)) as messages:  # type: ignore[type-var]
                async for one in messages:
                    arrived.omitted += len(arrived.messages) == count
                    arrived.messages.append(one)
                    arrived.news.set()
        except OrtooError as error:
            arrived.failure = error
            arrived.is_ended = True
            arrived.news.set()

    async def end() -> None:
        await stopping.wait()
        arrived.is_ended = True
        arrived.news.set()

    async with Background("follow") as background:
        background.spawn(topic, read())
        background.spawn("stop", end())
        while not arrived.is_ended:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await arrived.news.wait()
                    if not arrived.is_ended:
                        await clock.sleep(INTERVAL_S)
            except TimeoutError:
                pass
            yield arrived.take()
        if arrived.failure is not None:
            raise arrived.failure

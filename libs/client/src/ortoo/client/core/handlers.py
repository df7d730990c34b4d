"""Handlers for messages that come one by one: how they run, and how they say that a message shall come again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from ortoo.client.core.received import MessageFields
from ortoo.common.process.background import Background

M = TypeVar("M")


class RetryLater(Exception):
    """Raised by a handler: the message is not processed and shall come again."""

    def __init__(self, delay_level: int = 0, delay_ms: float | None = None, *, counts: bool = True) -> None:
        """Outside an order: at a delay level, 1 to 18; 0 = as the attempts say, -1 = never, park it.

        In order: after `delay_ms`, between 10 ms and 30 s. For a pop consumer `delay_ms` may be anything up to a week,
        and unless it `counts` the delivery is no attempt: what the handler needs is away, the message is not at fault.
        """
        super().__init__(f"again at level {delay_level}" if delay_ms is None else f"again in {delay_ms} ms")
        self.delay_level = delay_level
        self.delay_ms = delay_ms
        self.counts = counts


def named(group: str, message: MessageFields) -> dict[str, object]:
    """What a line of the log says about a message of a group, so that people find it."""
    return {"group": group, "queue": str(message.queue), "offset": message.offset, "message_id": message.message_id}


async def run_handlers(messages: AsyncIterator[M], handle: Callable[[M], Awaitable[None]], *, concurrency: int) -> None:
    """Give each message to `handle`, up to `concurrency` at a time, until there are no more.

    A message is asked for when somebody is free to handle it. Leaving calls off the handlers that still run.
    """
    slots = asyncio.Semaphore(concurrency)

    async def handle_one(message: M) -> None:
        try:
            await handle(message)
        finally:
            slots.release()

    async with Background("handlers") as background:
        await slots.acquire()
        async for message in messages:
            background.spawn("handle", handle_one(message))
            await slots.acquire()

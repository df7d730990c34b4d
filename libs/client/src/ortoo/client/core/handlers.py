"""Handlers for messages that come one by one, so many at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from ortoo.common.process.background import Background

M = TypeVar("M")


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

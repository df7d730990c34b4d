"""Runs handlers of single messages, several at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from ortoo.common.process.background import Background

M = TypeVar("M")


async def run_handlers(messages: AsyncIterator[M], handle: Callable[[M], Awaitable[None]], *, concurrency: int) -> None:
    """Give each message to `handle`, up to `concurrency` at a time, until `messages` ends.

    A message is fetched only when a handler slot is free. Cancellation cancels the handlers that still run.
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

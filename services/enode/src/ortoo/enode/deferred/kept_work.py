"""Work that goes on when whoever asked for it goes away: what was accepted must be followed up all the same."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ortoo.common.process.background import Background

T = TypeVar("T")


async def kept(background: Background, name: str, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a task of `background` and wait for it; a cancelled wait does not cancel the work."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            result = await work
        except Exception as error:
            if not outcome.done():
                outcome.set_exception(error)
        except BaseException:
            outcome.cancel()
            raise
        else:
            if not outcome.done():
                outcome.set_result(result)

    background.spawn(name, run())
    return await outcome

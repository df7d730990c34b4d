"""Handlers of programs without an event loop: they run in threads, and the caller waits until somebody stops them."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from ortoo.client.blocking.loop_thread import LoopThread

T = TypeVar("T")


class HandlerThreads:
    """Runs a consumer's handlers; one run at a time."""

    def __init__(self, thread: LoopThread) -> None:
        """The consumer lives on the loop of `thread`."""
        self._thread = thread
        self._running: asyncio.Task[None] | None = None

    def run(self, concurrency: int, work: Callable[[ThreadPoolExecutor], Awaitable[None]]) -> None:
        """Wait for `work`, which gets so many threads, until it ends or `stop` is called. Errors: those of `work`."""

        async def until_stopped() -> None:
            self._running = asyncio.current_task()
            with suppress(asyncio.CancelledError):
                await work(pool)

        with ThreadPoolExecutor(concurrency, thread_name_prefix="ortoo-handler") as pool:
            self._thread.wait(until_stopped())

    def stop(self) -> None:
        """Let `run` return; from any thread."""
        self._thread.soon(self._stop)

    def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()


def in_threads(pool: ThreadPoolExecutor, handler: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """A handler for the loop that runs in a thread of `pool`."""

    async def handle(received: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, handler, received)

    return handle

"""A thread with an event loop, and calls into it from programs that have none."""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ortoo.common.errors import Conflict

T = TypeVar("T")


class LoopThread:
    """A thread with an event loop, and calls into it."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run, name="ortoo-client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait; an interrupted wait cancels it."""
        return self._outcome(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if os.getpid() != self._process_id:
            work.close()
            raise Conflict("this client was connected before a fork; connect in the child instead")
        if threading.current_thread() is self._thread:
            work.close()
            raise Conflict("a blocking call on the client's own loop would wait for itself; use ortoo.client there")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _outcome(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future], timeout=5.0)
            raise

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an async context manager, and leave it with whatever ends the block."""

        async def enter() -> T:
            return await manager.__aenter__()

        async def leave(error: BaseException | None) -> bool | None:
            return await manager.__aexit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )

        value = self.wait(enter())
        try:
            yield value
        except BaseException as error:
            if not self.wait(leave(error)):
                raise
        else:
            self.wait(leave(None))

    def iterate(self, source: AsyncIterator[T], *, ahead: bool = False) -> Iterator[T]:
        """The items of an async iterator, one wait each; with `ahead` the next one comes while one is looked at."""

        async def following() -> tuple[T, ...]:
            async for item in source:
                return (item,)
            return ()

        async def close() -> None:
            closing = getattr(source, "aclose", None)
            if closing is not None:
                await closing()

        coming = self._begin(following())
        try:
            while item := self._outcome(coming):
                if ahead:
                    coming = self._begin(following())
                yield item[0]
                if not ahead:
                    coming = self._begin(following())
        finally:
            if not coming.done():
                coming.cancel()
                concurrent.futures.wait([coming], timeout=5.0)
            with contextlib.suppress(RuntimeError):
                self.wait(close())

    def call(self, call: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait; called on the loop itself, it runs at once."""
        if threading.current_thread() is self._thread:
            return call()

        async def do() -> T:
            return call()

        return self.wait(do())

    def soon(self, call: Any, *arguments: Any) -> None:
        """Run a plain function on the loop."""
        self._loop.call_soon_threadsafe(call, *arguments)

    def close(self) -> None:
        """End the loop and its thread."""
        if os.getpid() == self._process_id:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


_threads: ContextVar[Callable[[], LoopThread]] = ContextVar("loop_threads")


def new_loop_thread() -> LoopThread:
    """What the calls of one client run on: a thread of its own, unless the context says otherwise."""
    return _threads.get(LoopThread)()


@contextmanager
def using_loop_threads(make: Callable[[], LoopThread]) -> Iterator[None]:
    """Let clients that are connected in the block run on what `make` gives."""
    token = _threads.set(make)
    try:
        yield
    finally:
        _threads.reset(token)

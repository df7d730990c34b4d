"""A thread with an event loop, for calls from programs without an event loop."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ortoo.client.core.closed import CANCEL_INTERVAL_S, ClientClosed, close_within, used_before_fork
from ortoo.client.handling.closed_loops import ignore_closed_loops
from ortoo.common.errors import Conflict
from ortoo.common.process.clock import SystemClock

T = TypeVar("T")


class LoopCall(Generic[T]):
    """A coroutine that runs on a loop while another thread waits for its result.

    The wait uses no lock, because Ctrl-C could leave a lock locked.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        """Start `work` on `loop`, which another thread runs."""
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._ended: SimpleQueue[object] = SimpleQueue()
        loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved: no thread may wait for it
        self._ended.put(None)

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._task is not None and self._task.done()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the call has ended, at most for `timeout_s`; returns whether it has ended."""
        try:
            self._ended.get(timeout=timeout_s)
        except Empty:
            return self.done
        return True

    def result(self) -> T:
        """The result. Errors: those of the work, or CancelledError of concurrent.futures."""
        assert self._task is not None, "it has ended"
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise concurrent.futures.CancelledError from None

    def cancel(self) -> None:
        """Cancel the call and wait at most five seconds for its end. Does nothing if it has ended."""
        if not self.done:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())
                self.wait(5.0)


class LoopThread:
    """A thread that runs an event loop; other threads call functions and open context managers on the loop."""

    def __init__(self) -> None:
        """Start the thread."""
        self._opened: dict[OpenContext[Any], None] = {}
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        ignore_closed_loops(self._loop)
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run_loop, name="ortoo-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the loop and wait for its result; an interrupted wait cancels `work`.

        Errors: those of `work`, TimeoutError after `timeout_s`, ClientClosed.
        """
        return self._outcome(self._begin(work), timeout_s)

    def _begin(self, work: Coroutine[Any, Any, T]) -> LoopCall[T]:
        if self._is_closed:
            work.close()
            raise ClientClosed
        if self.is_forked:
            work.close()
            raise used_before_fork()
        if threading.current_thread() is self._thread:
            work.close()
            raise Conflict(
                "a blocking call on the client's own loop would deadlock; use the coroutines of ortoo.client on the "
                "loop"
            )
        try:
            return LoopCall(self._loop, work)
        except BaseException:  # an interrupt; a task that has started ends with the loop
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            raise

    def _outcome(self, call: LoopCall[T], timeout_s: float | None) -> T:
        try:
            if call.wait(timeout_s):
                return call.result()
        except BaseException:
            call.cancel()
            raise
        call.cancel()
        raise TimeoutError(f"no result within {timeout_s:g} s; the outcome is unknown")

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child, in which the thread does not run."""
        return os.getpid() != self._process_id

    def open(self, manager: AbstractAsyncContextManager[T]) -> "OpenContext[T]":
        """Enter an async context manager, and leave it at `OpenContext.close` or when this thread is closed."""
        opened = OpenContext(self, manager, self.run(manager.__aenter__()))
        self._opened[opened] = None
        return opened

    def discard(self, opened: "OpenContext[Any]") -> bool:
        """Remove a context manager from the list of open context managers; returns whether it was open."""
        return self._opened.pop(opened, self) is None

    @contextmanager
    def enter_context(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an async context manager, and leave it with the exception that ends the block."""
        opened = self.open(manager)
        try:
            yield opened.value
        except BaseException as error:
            if not opened.close(error):
                raise
        else:
            opened.close()

    def iterate(
        self, source: AsyncIterator[T], *, prefetch: bool = False, timeout_s: float | None = None
    ) -> Iterator[T]:
        """Iterate over an async iterator.

        With `prefetch` the next item is fetched while the caller uses the current one.

        Errors: those of the iterator, TimeoutError when an item takes longer than `timeout_s`.
        """

        async def next_item() -> tuple[T, ...]:
            async for item in source:
                return (item,)
            return ()

        async def close() -> None:
            closing = getattr(source, "aclose", None)
            if closing is not None:
                await closing()

        pending = self._begin(next_item())
        try:
            while item := self._outcome(pending, timeout_s):
                if prefetch:
                    pending = self._begin(next_item())
                yield item[0]
                if not prefetch:
                    pending = self._begin(next_item())
        finally:
            pending.cancel()
            with contextlib.suppress(RuntimeError, ClientClosed):
                self.run(close())

    def call(self, call: Callable[[], T]) -> T:
        """Run a plain function on the loop and return its result. A caller on the loop runs the function directly."""
        if threading.current_thread() is self._thread:
            return call()

        async def do() -> T:
            return call()

        return self.run(do())

    def call_soon(self, call: Any, *arguments: Any) -> None:
        """Schedule a plain function on the loop. Errors: ClientClosed."""
        if self._is_closed:
            raise ClientClosed
        self._loop.call_soon_threadsafe(call, *arguments)

    def close(self, timeout_s: float | None = None) -> None:
        """Close all open context managers, newest first, then end loop and thread.

        Errors: those of the managers, TimeoutError if all this takes longer than `timeout_s`. A handler that runs in a
        thread delays the end of the loop's thread; after `timeout_s` the loop's thread ends later than this call.
        """
        if self._is_closed or self.is_forked:
            return
        clock = SystemClock()
        begun_s = clock.monotonic_s()

        def rest_s() -> float | None:
            return None if timeout_s is None else max(0.0, begun_s + timeout_s - clock.monotonic_s())

        with contextlib.ExitStack() as stack:
            stack.callback(self._end, rest_s)
            for opened in self._opened:
                stack.callback(lambda one: one.close(None, rest_s()), opened)

    def _end(self, rest_s: Callable[[], float | None]) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        limit_s = rest_s()
        self._thread.join(None if limit_s is None else max(limit_s, CANCEL_INTERVAL_S))
        if self._thread.is_alive():
            raise TimeoutError("a handler did not return before the limit of the close; its thread continues")

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


class OpenContext(Generic[T]):
    """A context manager that was entered on a loop's thread and is closed once."""

    def __init__(self, thread: LoopThread, manager: AbstractAsyncContextManager[T], value: T) -> None:
        """Made by `LoopThread.open`."""
        self.value = value
        """The result of entering the context manager."""
        self._thread = thread
        self._manager = manager

    def close(self, error: BaseException | None = None, timeout_s: float | None = None) -> bool:
        """Leave the context manager with the exception of its block; returns whether to suppress the exception.

        A second call, or one in a forked child, does nothing.
        """
        if not self._thread.discard(self) or self._thread.is_forked:
            return False
        if error is not None and not isinstance(error, Exception):
            # The interrupt belongs to this thread. Raised on the loop it would end the loop before anything is closed.
            error = asyncio.CancelledError()

        async def leave() -> bool:
            leaving = self._manager.__aexit__(type(error) if error else None, error, None)
            try:
                if timeout_s is not None:
                    return bool(await close_within(type(self.value).__name__, leaving, timeout_s))
                return bool(await leaving)
            except asyncio.CancelledError:
                if isinstance(error, asyncio.CancelledError):
                    return False
                raise

        return self._thread.run(leave())


_loop_thread_factory: ContextVar[Callable[[], LoopThread]] = ContextVar("loop_threads")


def new_loop_thread() -> LoopThread:
    """A loop thread for one client: a new thread, unless `using_loop_threads` provides a thread."""
    return _loop_thread_factory.get(LoopThread)()


@contextmanager
def using_loop_threads(make: Callable[[], LoopThread]) -> Iterator[None]:
    """Let clients that are connected in the block use the loop threads that `make` returns."""
    token = _loop_thread_factory.set(make)
    try:
        yield
    finally:
        _loop_thread_factory.reset(token)

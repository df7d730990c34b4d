"""Calls a handler of the application. This is the only owner of the rule for its ends.

However a handler ends, the message that it got is settled. Only the cancellation of the consumer itself is a stop: then
the message stays unsettled, and the consumer releases it. A `CancelledError` that comes from a child task or a closed
session of the handler is a failure like any other.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ortoo.client.handling.threads import HandlerThreads
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client.tracing.telemetry import Telemetry

G = TypeVar("G")
R = TypeVar("R")
ENDS_PROGRAM = (KeyboardInterrupt, SystemExit)
"""Exceptions of a handler that end the program after its message is settled."""
HANDLER_THREADS_MAX = 256
"""Largest number of threads for a handler that is a plain function."""


@dataclass(frozen=True, slots=True)
class HandlerEnd(Generic[R]):
    """The outcome of one call of a handler."""

    result: R | None = None
    failure: BaseException | None = None
    """The reason why the message is not processed; None = the handler has returned."""
    raised: BaseException | None = None
    """The exception of the handler itself."""


class HandlerCalls(Generic[G, R]):
    """The calls of one handler by one consumer. A plain function runs in a thread, a coroutine function on the loop."""

    def __init__(
        self,
        handler: Callable[..., Awaitable[R] | R],
        *,
        threads: int,
        argument: Callable[[G], object] = lambda given: given,
        failure_of: Callable[[G, BaseException], BaseException] = lambda _, failure: failure,
        failure_of_each: Callable[[Any, BaseException], BaseException] = lambda _, failure: failure,
        timeout_s: float | None = None,
        around: Sequence[Callable[[G], AbstractAsyncContextManager[None]]] = (),
    ) -> None:
        """A plain function gets at most `threads` threads. `argument` makes its argument from what is given.

        `failure_of` replaces the exception of a failed call, for example by one with the delay of the retry. For a
        batch, `failure_of_each` does so for each of its messages. A call that takes longer than `timeout_s` fails; a
        thread that continues occupies its place. The context managers `around` are entered for each call.
        Errors: Invalid for a function that cannot be a handler.
        """
        check_handler(handler, threads)
        check_takes_one(handler)
        self._handler = handler
        self._argument = argument
        self._failure_of = failure_of
        self.failure_of_each = failure_of_each
        self._timeout_s = timeout_s
        self._around = around
        self._threads = None if is_async(handler) else HandlerThreads(threads)
        self._telemetry: tuple[Telemetry, str] | None = None
        self.running = 0
        """Number of calls whose block has not ended."""
        self.idle = asyncio.Event()
        """Set while there is none."""
        self.idle.set()
        self._is_closed = self._abandons_threads = False

    @classmethod
    def of(
        cls, handler: "Callable[[G], Awaitable[R] | R] | HandlerCalls[G, R]", *, threads: int
    ) -> "HandlerCalls[G, R]":
        """Make the calls of a handler; a `HandlerCalls` is returned unchanged."""
        return handler if isinstance(handler, HandlerCalls) else cls(handler, threads=threads)

    def trace(self, telemetry: "Telemetry | None", group: str) -> None:
        """Make a span for each call. The handler gets messages of `group`."""
        self._telemetry = None if telemetry is None else (telemetry, group)

    @asynccontextmanager
    async def ended(self, given: G) -> AsyncIterator[HandlerEnd[R]]:
        """Call the handler for the message or messages `given`; the block acknowledges or nacks them.

        The block runs for every end of the handler, except when the cancellation of the caller's task stopped it. If
        that cancellation came and the handler still returned, the block runs, and CancelledError is raised after it. A
        thread cannot be stopped, so its handler runs to its end, except after `abandon_threads`. A KeyboardInterrupt or
        SystemExit of the handler is raised after the block as well.
        """
        if self._is_closed:
            await asyncio.Event().wait()  # until cancelled, with the run that begins no other call
        task = asyncio.current_task()
        assert task is not None, "consumers run in tasks"
        cancellations = task.cancelling()
        self.running += 1
        self.idle.clear()
        try:
            end, is_interrupted = await self._call(given)
            is_stopped = task.cancelling() > cancellations
            if is_stopped and is_interrupted:
                raise asyncio.CancelledError
            yield end
            if is_stopped:
                raise asyncio.CancelledError
            if isinstance(end.raised, ENDS_PROGRAM):
                raise end.raised
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()

    def close(self) -> None:
        """Begin no further calls. Tasks that try to begin a call wait until they are cancelled."""
        self._is_closed = True

    def abandon_threads(self) -> None:
        """End the wait of cancelled callers for threads whose handlers have not returned in time."""
        self._abandons_threads = True

    async def _call(self, given: G) -> tuple[HandlerEnd[R], bool]:
        """Call the handler. Returns its end, and whether a cancellation of the caller may have interrupted it."""
        if self._telemetry is None:
            return await self._call_in(given, copy_context())
        telemetry, group = self._telemetry
        messages = cast("Any", given if isinstance(given, Sequence) else (given,))
        process = telemetry.start_process(messages, group)
        try:
            end, is_interrupted = await self._call_in(given, telemetry.run_context(process))
        except BaseException as stop:
            process.end(stop)
            raise
        process.end(end.raised)
        return end, is_interrupted

    async def _call_in(self, given: G, context: Context) -> tuple[HandlerEnd[R], bool]:
        """Call the handler, within the context managers around it, with the context variables of `context`."""
        if not self._around:
            return await self._call_handler(given, context)
        end = await self._end_on_loop(given, lambda: self._call_within(given), context, timeout_s=None)
        return end, end.failure is not None

    async def _call_within(self, given: G) -> R | None:
        async with AsyncExitStack() as stack:
            for enter in self._around:
                await stack.enter_async_context(enter(given))
            end, _ = await self._call_handler(given, copy_context())
            if (error := end.raised) is not None:
                raise error
            return end.result
        return None  # a context manager has suppressed the error

    async def _call_handler(self, given: G, context: Context) -> tuple[HandlerEnd[R], bool]:
        timeout_s = self._timeout_s
        if self._threads is None:
            end = await self._end_on_loop(given, lambda: self._handler(self._argument(given)), context, timeout_s)
            return end, end.failure is not None
        end = await self._end_in_thread(given, self._threads, context)
        if not inspect.isawaitable(end.result):
            return end, False
        coroutine = end.result  # of a function that returns one, such as a decorated handler
        end = await self._end_on_loop(given, lambda: coroutine, context, timeout_s)
        return end, end.failure is not None

    async def _end_on_loop(
        self, given: G, call: Callable[[], Any], context: Context, timeout_s: float | None
    ) -> HandlerEnd[R]:
        """Call and await the handler in a task of its own.

        There, a handler that cancels its current task does not look like a stop of the consumer.
        """

        async def end() -> HandlerEnd[R]:
            limit = asyncio.timeout(timeout_s)
            try:
                if timeout_s is None:
                    return HandlerEnd(result=await call())
                async with limit:
                    return HandlerEnd(result=await call())
            except BaseException as error:
                return self._failed(given, self._timed_out() if limit.expired() else error)

        task = cast("asyncio.Task[Any]", asyncio.current_task())
        cancellations = task.cancelling()
        work = asyncio.get_running_loop().create_task(end(), context=context)
        try:
            return await work
        except asyncio.CancelledError as error:
            if not work.cancelled():  # the handler ended in the turn of the loop in which the stop came
                return work.result()
            if task.cancelling() > cancellations:  # stopped before the handler began
                raise
            return self._failed(given, error)  # it cancelled its task and returned

    async def _end_in_thread(self, given: G, threads: HandlerThreads, context: Context) -> HandlerEnd[R]:
        """Call the handler in a thread, and wait for its end also if the caller is cancelled."""
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def end() -> HandlerEnd[R]:
            if self._timeout_s is not None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(begun.set)
            try:
                return HandlerEnd(result=cast("R", self._handler(self._argument(given))))
            except BaseException as error:
                return self._failed(given, error)

        work = loop.run_in_executor(threads, context.run, end)
        deadline_s: float | None = None
        while not work.done():
            try:
                if self._timeout_s is None:
                    await asyncio.wait((work,))
                    continue
                await begun.wait()  # the time in which it waits for a thread does not count
                deadline_s = deadline_s or loop.time() + self._timeout_s
                await asyncio.wait((work,), timeout=deadline_s - loop.time())
                if loop.time() >= deadline_s and not work.done():
                    return self._failed(given, self._timed_out())
            except asyncio.CancelledError:  # counted by the task, see `ended`
                if self._abandons_threads:
                    raise
        return work.result()

    def _timed_out(self) -> TimeoutError:
        return TimeoutError(f"the handler did not return within {self._timeout_s:g} s")

    def _failed(self, given: G, error: BaseException) -> HandlerEnd[R]:
        return HandlerEnd(failure=self._failure_of(given, error), raised=error)


def is_async(handler: Callable[..., object]) -> bool:
    """Whether a handler is a coroutine function, or an object with an `async def __call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def check_handler(handler: Callable[..., object], threads: int) -> None:
    """Refuse an object that cannot be a handler, or cannot run in `threads` threads. Errors: Invalid."""
    name = getattr(handler, "__qualname__", repr(handler))
    if not callable(handler):
        raise Invalid(f"{name} cannot be called; expected a function", field="handler")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise Invalid(
            f"{name} contains `yield`, so a call would not run it; expected a function that returns when the message "
            "is processed",
            field="handler",
        )
    if threads < 1:
        raise Invalid(f"{threads}; expected 1 or more", field="concurrency")
    if threads > HANDLER_THREADS_MAX and not is_async(handler):
        raise Invalid(
            f"{threads} threads for the plain function {name}; expected at most {HANDLER_THREADS_MAX}. Lower the "
            "concurrency, or use an `async def` function",
            field="concurrency",
        )


def check_takes_one(handler: Callable[..., object]) -> None:
    """Refuse a handler that cannot be called with one argument. Errors: Invalid."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some functions written in C have none
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(handler, "__qualname__", repr(handler))
        raise Invalid(f"{name}{signature} does not take one message: {error}", field="handler") from None

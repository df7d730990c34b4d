"""The owner of every task, so that each task is waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from ortoo.common.errors import OrtooError
from ortoo.common.errors.status import cancellation_count
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import Scope, record_contained, waiting_place

CANCEL_AGAIN_S = 10.0
"""Time after which cancelled tasks that have not ended are cancelled again."""
OF_A_PEER = (OrtooError, OSError, grpc.RpcError)
"""Errors of a body when a peer is down or does not answer (TimeoutError is an OSError), which are not defects."""
T = TypeVar("T")
_log = get_logger("background")


class Background:
    """A group of tasks with the lifetime of a service, or of one of its connections.

    Leaving the block cancels all tasks and waits for them. A failed task of `spawn` cancels its siblings and the
    block's body, and the block raises the failure. Therefore no service runs without one of its loops. Use `spawn` on a
    process's Background only for the process's own loops. Use a `scope` for tasks that serve one peer, or
    `run_contained` for a single such task. Use `start_future` when a caller waits for the result.
    """

    def __init__(self, name: str) -> None:
        """`name` is the owner's name, for logs and task names."""
        self._name = name
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_leaving = False
        self._has_failed = False
        self._cancellations = 0
        self._again: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._cancellations = cancellation_count()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_leaving = True
        self._cancel_all()
        try:
            await self._group.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if cancellation_count() > self._cancellations and isinstance(group, ExceptionGroup):
                if group.exceptions != (error,) or not isinstance(error, OF_A_PEER):
                    record_contained(self._name, group)
                raise asyncio.CancelledError from group  # a cancellation wins over failures
            if group.exceptions != (error,):
                raise
            # Only the block's body failed: its error is raised, not wrapped into a group of one.
        finally:
            if self._again is not None:
                self._again.cancel()

    def _cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            self._again = asyncio.get_running_loop().call_later(CANCEL_AGAIN_S, self._cancel_again)

    def _cancel_again(self) -> None:
        """Cancel all tasks again. If a library has swallowed a cancellation, the stop would otherwise wait for ever."""
        _log.emit(
            log_events.TASK_CANCEL_TIMEOUT,
            owner=self._name,
            waiting={task.get_name(): waiting_place(task) for task in self._tasks},
        )
        self._cancel_all()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` until it ends or the block is left. Work that is given later, or after a failure, is cancelled."""
        named = f"{self._name}:{name}"
        is_ending = self._is_leaving or self._has_failed
        try:
            task = self._group.create_task(work, name=named)
        except RuntimeError:  # a group that has failed rejects tasks
            if not is_ending:
                raise
            task = asyncio.get_running_loop().create_task(work, name=named)
        if is_ending:
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._has_failed = True

    def scope(self, where: str, *, failed: Callable[[Exception], object] = lambda _: None) -> Scope:
        """A scope for one peer; `where` names the kind of peer, and `failed` gets the error that ended the scope."""
        return Scope(where, self.spawn, failed)

    def run_contained(self, where: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run `work` in a scope of its own: its failure is logged and counted, and ends no other task."""
        return self.scope(where).start("one", work)

    def start_future(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run `work`; the future gets its result or error. Cancelling the future cancels the work."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                result = await work
            except Exception as error:
                if not outcome.done():
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(result)

        def seen(future: asyncio.Future[T]) -> None:
            if future.cancelled():
                task.cancel()
            else:
                future.exception()  # read it, in case no task waits any more

        task = self.spawn(name, run())

        def over(_: asyncio.Task[Any]) -> None:
            work.close()  # it may have been cancelled before it began
            outcome.cancel()

        task.add_done_callback(over)
        outcome.add_done_callback(seen)
        return outcome

    async def run_shielded(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and wait for it. Cancelling the caller does not cancel `work`, so accepted work is completed."""
        return await asyncio.shield(self.start_future(name, work))

    def every(
        self,
        name: str,
        seconds: float,
        step: Callable[[], Awaitable[object]],
        *,
        clock: Clock,
        first_s: float | None = None,
    ) -> asyncio.Task[Any]:
        """Run `step` at this interval, first after `first_s` (None = one period).

        A step that raises is logged and retried.
        """

        async def loop() -> None:
            wait_s = seconds if first_s is None else first_s
            while True:
                await clock.sleep(wait_s)
                wait_s = seconds
                await self._try(name, step)

        return self.spawn(name, loop())

    def after(
        self, name: str, event: asyncio.Event, seconds: float, step: Callable[[], Awaitable[object]], *, clock: Clock
    ) -> asyncio.Task[Any]:
        """Run `step` each time that `event` is set, after this many seconds.

        The event is cleared before the step. A step that raises is logged, and retried after `seconds`.
        """

        async def loop() -> None:
            while True:
                await event.wait()
                await clock.sleep(seconds)
                event.clear()
                if not await self._try(name, step):
                    event.set()

        return self.spawn(name, loop())

    async def _try(self, name: str, step: Callable[[], Awaitable[object]]) -> bool:
        try:
            await step()
        except OrtooError as error:
            _log.emit(log_events.PERIODIC_STEP_FAILED, owner=self._name, step=name, reason=str(error))
        except Exception as error:
            record_contained(f"{self._name} {name}", error)
        else:
            return True
        return False


async def pause(seconds: float, wake: asyncio.Event, clock: Clock) -> None:
    """Wait for this many seconds, or until `wake` is set."""
    async with Background("pause") as background:
        sleeping = background.spawn("sleep", clock.sleep(seconds))
        hurrying = background.spawn("hurry", wake.wait())
        await asyncio.wait({sleeping, hurrying}, return_when=asyncio.FIRST_COMPLETED)

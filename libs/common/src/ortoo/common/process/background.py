"""The owner of every task: nothing runs that nobody waits for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from ortoo.common.errors import OrtooError
from ortoo.common.errors.status import cancellations
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import Scope, contain, place_of

LOST_S = 10.0
"""How long tasks may take to end once they are cancelled, before they are cancelled once more."""
OF_A_PEER = (OrtooError, OSError, grpc.RpcError)
"""What a body raises because somebody else is away, or silent (TimeoutError is an OSError): no defect."""
T = TypeVar("T")
_log = get_logger("background")


class Background:
    """A group of tasks that live as long as a service, or as one connection of it.

    Leaving the block cancels them all and waits for them. A task of `spawn` that fails cancels its siblings and the
    block's body, and the failure is raised from the block: a service never limps on with a dead loop. So `spawn` on a
    process's Background is for the process's own loops; what serves one peer goes into a `scope`, by itself if it is
    one task (`contained`), or is `asked` when somebody waits for what it brings.
    """

    def __init__(self, name: str) -> None:
        """`name` is the owner's, for logs and task names."""
        self._name = name
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_leaving = False
        self._cancellations = 0
        self._again: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._cancellations = cancellations()
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
            if cancellations() > self._cancellations and isinstance(group, ExceptionGroup):
                if group.exceptions != (error,) or not isinstance(error, OF_A_PEER):
                    contain(self._name, group)
                raise asyncio.CancelledError from group  # who cancels must not lose to what fails meanwhile
            if group.exceptions != (error,):
                raise
            # Only the block's body failed: its own error goes on, not wrapped into a group of one.
        finally:
            if self._again is not None:
                self._again.cancel()

    def _cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            self._again = asyncio.get_running_loop().call_later(LOST_S, self._cancel_again)

    def _cancel_again(self) -> None:
        """A cancellation can be lost where a library takes it for its own; a stop that waits for ever helps nobody."""
        _log.emit(
            log_events.TASK_CANCEL_TIMEOUT,
            owner=self._name,
            waiting={task.get_name(): place_of(task) for task in self._tasks},
        )
        self._cancel_all()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` until it ends or the block is left. What is begun by a task that is being cancelled is as well."""
        task = self._group.create_task(work, name=f"{self._name}:{name}")
        if self._is_leaving:
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def scope(self, where: str, *, failed: Callable[[Exception], object] = lambda _: None) -> Scope:
        """A scope for one peer; `where` names the kind of peer, and `failed` hears why the scope ended by itself."""
        return Scope(where, self.spawn, failed)

    def contained(self, where: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run `work` in a scope of its own: its failure is noted, and ends nothing else."""
        return self.scope(where).start("one", work)

    def asked(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run `work` for whoever waits: what it brings or raises is the future's. Cancelling the future ends it."""
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
                future.exception()  # one that nobody waits for any more is no news

        task = self.spawn(name, run())

        def over(_: asyncio.Task[Any]) -> None:
            work.close()  # it may have been cancelled before it began
            outcome.cancel()

        task.add_done_callback(over)
        outcome.add_done_callback(seen)
        return outcome

    async def kept(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and wait for it; a cancelled wait does not cancel it: what was accepted is followed up."""
        return await asyncio.shield(self.asked(name, work))

    def every(
        self,
        name: str,
        seconds: float,
        step: Callable[[], Awaitable[object]],
        *,
        clock: Clock,
        first_s: float | None = None,
    ) -> asyncio.Task[Any]:
        """Run `step` every so many seconds, first after `first_s` (None = one period).

        A step that raises is logged and tried again.
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
        """Run `step` so many seconds after `event` was set, as often as it is; in between nothing is done.

        The event is cleared before the step. A step that raises is logged and tried again after as long.
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
            contain(f"{self._name} {name}", error)
        else:
            return True
        return False


async def pause(seconds: float, hurried: asyncio.Event, clock: Clock) -> None:
    """Wait so long, or until the event is set."""
    async with Background("pause") as background:
        sleeping = background.spawn("sleep", clock.sleep(seconds))
        hurrying = background.spawn("hurry", hurried.wait())
        await asyncio.wait({sleeping, hurrying}, return_when=asyncio.FIRST_COMPLETED)

"""The owner of every task: nothing runs that nobody waits for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger

_log = get_logger("background")


class Background:
    """A group of tasks that live as long as a service, or as one connection of it.

    Leaving the block cancels them all and waits for them. A task that fails cancels its siblings and the block's
    body, and the failure is raised from the block: a service never limps on with a dead loop.
    """

    def __init__(self, name: str) -> None:
        """`name` is the owner's, for logs and task names."""
        self._name = name
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_leaving = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_leaving = True
        for task in tuple(self._tasks):
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if group.exceptions != (error,):
                raise
            # Only the block's body failed: its own error goes on, not wrapped into a group of one.

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` until it ends or the block is left. What is begun by a task that is being cancelled is as well."""
        task = self._group.create_task(work, name=f"{self._name}:{name}")
        if self._is_leaving:
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def every(
        self, name: str, seconds: float, step: Callable[[], Awaitable[object]], *, clock: Clock
    ) -> asyncio.Task[Any]:
        """Run `step` every so many seconds, first after one period. A step that raises is logged and tried again."""

        async def loop() -> None:
            while True:
                await clock.sleep(seconds)
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
            _log.warning("periodic step failed", owner=self._name, step=name, reason=str(error))
        except Exception:
            _log.exception("periodic step failed", owner=self._name, step=name)
        else:
            return True
        return False

"""Tasks and futures whose hash is a running number.

asyncio keeps tasks in sets and walks them: `TaskGroup`, `wait`, `gather`. The usual hash of a task is its address, so
the order would differ from run to run.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortoo.testing.simulation.kernel.process import SimulatedProcess


class NumberedTask(asyncio.Task[Any]):
    """A task with a number and its process."""

    _log_destroy_pending: bool

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        *,
        number: int,
        process: "SimulatedProcess",
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: Context,
    ) -> None:
        """Start `work` in the loop's next turn."""
        self.number = number  # first, because the base class puts the task into a set
        self.process = process
        super().__init__(work, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class NumberedFuture(asyncio.Future[Any]):
    """A future with a number, which the loop sets: a constructor here would take time for each of them."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

"""A process in the simulation: everything that runs in its context, until it is killed."""

import asyncio
import gc
import sys
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ortoo.testing.memory_grpc import NODE, Node
from ortoo.testing.simulation.kernel.numbered import NumberedTask

if TYPE_CHECKING:
    from ortoo.testing.simulation.kernel.event_loop import VirtualLoop

CLOSE_TRIES_MAX = 50
"""How often a coroutine that awaits again and again while it is closed is closed, before it is left alone."""


def process_of(context: Context) -> "SimulatedProcess | None":
    """The process that code in this context belongs to; None for what no process has begun."""
    node = context.get(NODE)
    return node if isinstance(node, SimulatedProcess) else None


def current_process() -> "SimulatedProcess | None":
    """The process whose code runs now."""
    node = NODE.get()
    return node if isinstance(node, SimulatedProcess) else None


class SimulatedProcess(Node):
    """What the operating system knows of a process: its name, its threads' work, whether it runs.

    Its first task is begun by `spawn`; everything that task begins belongs to the process too, because the context is
    inherited. After `kill` nothing of it runs again, finally blocks included: the loop passes over whatever carries
    its context, and what it leaves is kept here, so that no finalizer runs either.
    """

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        """A process with nothing to do yet. Names are unique in a run: a restart gets another one."""
        super().__init__(name)
        self.loop = loop
        self.paused = False
        """Stopped as by SIGSTOP: what becomes ready waits."""
        self.turn_s = 0.0
        """How long one turn keeps its processor busy, on average: 0 = no time at all."""
        self.is_busy = False
        """In the middle of such a turn: what becomes ready waits."""
        self.is_runnable = False
        """Whether it is among those that the loop gives turns to."""
        self.ready: deque[asyncio.Handle] = deque()
        """What the loop is to run, in this order, as asyncio promises."""
        self.executors_free_at_s: dict[int, float] = {}
        """When each executor has done what it was given, by its identity."""

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> NumberedTask:
        """Run `work` as a part of this process."""
        return self.loop.create_task(work, name=name, context=self.context.copy())

    def pause(self) -> None:
        """Stop it as SIGSTOP does: time goes on without it."""
        self.paused = True
        self.loop.rest(self)

    def resume(self) -> None:
        """Let it run again: all timers that came meanwhile have come."""
        self.paused = False
        self.loop.wake(self)

    def kill(self, *, silently: bool = False) -> None:
        """End it at once. Nothing of it runs again. `silently` is a power cut: not even its connections are closed."""
        if not self.is_alive:
            return
        super().kill(silently=silently)
        self.lay_down()

    def lay_down(self) -> None:
        """Put all that it is doing aside, to be kept until it is buried."""
        # Dropping the last reference to a coroutine would run its finally blocks.
        self.remains += [task for task in asyncio.all_tasks(self.loop) if self._owns(task)]
        self.remains += self.ready
        self.ready = deque()
        self.loop.rest(self)

    def tasks(self) -> list[NumberedTask]:
        """Its tasks that are not done, oldest first."""
        found = [task for task in asyncio.all_tasks(self.loop) if self._owns(task)]
        return sorted((task for task in found if isinstance(task, NumberedTask)), key=lambda task: task.number)

    def bury(self) -> None:
        """Free what it left, after the run: finally blocks run now, up to what they await, and do no harm any more."""
        remains, self.remains = self.remains, []
        for one in remains:
            if isinstance(one, NumberedTask):
                one._log_destroy_pending = False  # asyncio's own switch against a warning that means nothing here
                _close(one.get_coro())
            elif isinstance(one, AsyncGenerator):
                _close(one.aclose())

    def _owns(self, task: "asyncio.Task[Any]") -> bool:
        return isinstance(task, NumberedTask) and task.process is self


def bury_all(loop: "VirtualLoop", processes: Sequence[SimulatedProcess]) -> None:
    """Close everything that a run left. The loop turns once more for it, and nothing of what it does has any effect."""
    dead = (*processes, loop.outside)

    async def bury() -> None:
        for process in dead:
            process.context.copy().run(process.bury)
        gc.collect()
        for process in dead:
            process.context.copy().run(process.bury)  # what came up when the first were closed

    for process in processes:
        process.kill()
    loop.outside.lay_down()  # it stays: the loop itself calls from there
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # what the dead say at their end concerns nobody
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            loop.begin_anew()
            loop.run_until_complete(loop.create_task(bury(), context=loop.outside.context))
            loop.outside.lay_down()
            loop.outside.bury()
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _close(work: Any) -> None:
    for _ in range(CLOSE_TRIES_MAX):
        try:
            work.close()
        except RuntimeError:
            continue  # it awaits in a finally block: the next try goes on behind that
        except BaseException:
            return
        return

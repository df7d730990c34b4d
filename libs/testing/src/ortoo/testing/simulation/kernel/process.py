"""A simulated process: everything that runs in its context, until it is killed."""

import asyncio
import gc
import inspect
import sys
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ortoo.testing.memory_grpc import NODE, Node
from ortoo.testing.simulation.kernel.numbered_tasks import NumberedTask

if TYPE_CHECKING:
    from ortoo.testing.simulation.kernel.event_loop import VirtualLoop

CLOSE_TRIES_MAX = 50
"""The number of times that a coroutine which awaits during its close is closed, before it is abandoned."""


def process_of(context: Context) -> "SimulatedProcess | None":
    """The process that owns code in this context; None for code outside any process."""
    node = context.get(NODE)
    return node if isinstance(node, SimulatedProcess) else None


def current_process() -> "SimulatedProcess | None":
    """The process of the running code."""
    node = NODE.get()
    return node if isinstance(node, SimulatedProcess) else None


class SimulatedProcess(Node):
    """The state of a process: its name, its executors' work, and whether it runs.

    `spawn` begins its first task. Everything that task begins belongs to the process too, because the context is
    inherited. After `kill` none of its code runs again, finally blocks included. The loop skips callbacks with its
    context, and references are kept here, so that no finalizer runs either.
    """

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        """A process without work. Names are unique in a run: a restart gets another one."""
        super().__init__(name)
        self.loop = loop
        self.paused = False
        """Stopped as by SIGSTOP: ready callbacks wait."""
        self.turn_s = 0.0
        """The mean time for which a turn occupies its processor: 0 = no time at all."""
        self.is_busy = False
        """In the middle of such a turn: ready callbacks wait."""
        self.is_runnable = False
        """Whether the loop gives it turns."""
        self.ready: deque[asyncio.Handle] = deque()
        """Callbacks for the loop to run, in this order, as asyncio promises."""
        self.executors_free_at_s: dict[int, float] = {}
        """The time at which each executor has done its work, by its identity."""

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> NumberedTask:
        """Run `work` as a part of this process."""
        return self.loop.create_task(work, name=name, context=self.context.copy())

    def pause(self) -> None:
        """Stop it as SIGSTOP does: time passes without it."""
        self.paused = True
        self.loop.rest(self)

    def resume(self) -> None:
        """Let it run again: all timers due meanwhile have fired."""
        self.paused = False
        self.loop.wake(self)

    def kill(self, *, silently: bool = False) -> None:
        """End it at once; none of its code runs again. With `silently` connections stay open, as after a power cut."""
        if not self.is_alive:
            return
        super().kill(silently=silently)
        self.set_aside()

    def set_aside(self) -> None:
        """Keep references to all its tasks and callbacks until `dispose`."""
        # Dropping the last reference to a coroutine would run its finally blocks.
        self.remains += [task for task in asyncio.all_tasks(self.loop) if self._owns(task)]
        self.remains += self.ready
        self.ready = deque()
        self.loop.rest(self)

    def tasks(self) -> list[NumberedTask]:
        """Its tasks that are not done, oldest first."""
        found = [task for task in asyncio.all_tasks(self.loop) if self._owns(task)]
        return sorted((task for task in found if isinstance(task, NumberedTask)), key=lambda task: task.number)

    def dispose(self) -> None:
        """Free its objects after the run: finally blocks run now, up to their first await, without any effect."""
        remains, self.remains = self.remains, []
        for one in remains:
            if isinstance(one, NumberedTask):
                one._log_destroy_pending = False  # asyncio's own switch against a warning that has no meaning here
                _close(one.get_coro())
            elif isinstance(one, AsyncGenerator):
                _close(one.aclose())

    def _owns(self, task: "asyncio.Task[Any]") -> bool:
        return isinstance(task, NumberedTask) and task.process is self


def dispose_all(loop: "VirtualLoop", processes: Sequence[SimulatedProcess]) -> None:
    """Close everything that a run left. The loop turns once more for it, without any effect."""
    dead = (*processes, loop.outside)

    async def bury() -> None:
        for process in dead:
            process.context.copy().run(process.dispose)
        gc.collect()
        for process in dead:
            process.context.copy().run(process.dispose)  # objects created while the first were closed

    for process in processes:
        process.kill()
    loop.outside.set_aside()  # it stays, because the loop itself calls from there
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # errors of dead processes do not matter
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            loop.reset_turn_count()
            loop.run_until_complete(loop.create_task(bury(), context=loop.outside.context))
            loop.outside.set_aside()
            loop.outside.dispose()
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _close(work: Any) -> None:
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        for passed in inspect.getcoroutinelocals(work).values():  # it would have awaited them
            if inspect.iscoroutine(passed):
                _close(passed)
    for _ in range(CLOSE_TRIES_MAX):
        try:
            work.close()
        except RuntimeError:
            continue  # it awaits in a finally block; the next try continues after that
        except BaseException:
            return
        return

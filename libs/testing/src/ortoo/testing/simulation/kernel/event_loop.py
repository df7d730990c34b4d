"""An event loop in virtual time, which passes only when all tasks wait. The seed draws the order.

Each process has its own queue of ready callbacks, first in, first out, as asyncio promises. The seed draws the process
that takes the next turn. When no process has work, the time moves to the next timer. There are no sockets, threads and
signals: code that asks for one gets `OutsideSimulation`.
"""

import asyncio
import heapq
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from ortoo.testing.memory_grpc import NODE
from ortoo.testing.simulation.kernel.numbered_tasks import NumberedFuture, NumberedTask
from ortoo.testing.simulation.kernel.process import SimulatedProcess, current_process, process_of
from ortoo.testing.simulation.kernel.random_streams import RandomStreams

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
TURNS_MAX = 200_000
"""A loop that takes this many turns without any time passing spins."""
CANCELLED_MIN = 500
"""Cancelled timers are dropped above this number, if they are half of all."""
CALL_BEGINS_S = (0.000_05, 0.001)
"""The minimum and maximum time that work waits for a thread of an executor."""
CALL_TAKES_S = (0.000_05, 0.002)
"""The minimum and maximum time that it runs there."""


class SimulationStuck(RuntimeError):
    """All tasks wait without a timer, or a process spins without ever waiting."""


class OutsideSimulation(RuntimeError):
    """Code asked for a socket, a thread or another part of the real world."""


class _Ready(asyncio.Handle):
    """A handle that is created without the questions of debug mode: a run creates hundreds of thousands."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """A timer that records whether it is still in the heap; created without the questions of debug mode."""

    __slots__ = ("waits",)

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.waits = True


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of a simulated run."""

    _stopping: bool
    _thread_id: int
    get_debug = staticmethod(bool)  # False; it is called for every handle and future, and this takes no frame

    def __init__(self, chances: RandomStreams) -> None:
        """Begin at time 0; all random choices come from `chances`."""
        super().__init__()
        self._now_s = 0.0
        self._order = chances.stream("order")
        self._executors = chances.stream("executors")
        self._processors = chances.stream("processors")
        self._runnable: list[SimulatedProcess] = []
        self._timers: list[tuple[float, int, _Timer, SimulatedProcess]] = []
        self._cancelled_timers = 0
        self._timer_number = 0
        self._task_number = 0
        self._turns = 0
        self._generators: dict[int, SimulatedProcess] = {}
        self.outside = SimulatedProcess(self, "simulation")
        """The process of code outside any process: the network, and observers."""

    # Time and order.

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now_s

    def leap(self, seconds: float) -> None:
        """Let time pass at once, as for a machine that slept: every timer due in it fires late."""
        self._now_s += seconds

    def reset_turn_count(self) -> None:
        """Reset the count of turns: the spinning process is dead."""
        self._turns = 0

    def wake(self, process: SimulatedProcess) -> None:
        """Let a process take turns again."""
        if process.ready and not process.paused and not process.is_busy and not process.is_runnable:
            process.is_runnable = True
            self._runnable.append(process)

    def rest(self, process: SimulatedProcess) -> None:
        """Let a process take no further turns."""
        if process.is_runnable:
            process.is_runnable = False
            self._runnable.remove(process)

    def _run_once(self) -> None:
        """Turns until the loop is told to stop: each runs a process's callbacks that were ready when it began."""
        while not self._stopping and (process := self._next_process()) is not None:
            ready = process.ready
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.call_exception_handler(
                            {"message": f"Exception in callback {handle!r}", "exception": error}
                        )
                if process.ready is not ready or process.paused:
                    break  # its callback killed or paused it
            else:
                if process.turn_s:
                    self._occupy(process)
                elif not ready:
                    self.rest(process)

    def _next_process(self) -> SimulatedProcess | None:
        """The process that takes the next turn, after time has passed if all wait; None when the loop must stop."""
        timers, runnable = self._timers, self._runnable
        if timers and timers[0][0] <= self._now_s:
            self._fire()
        while not runnable and not self._stopping:
            self._pass_time()
        count = len(runnable)
        if not count:
            return None
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise SimulationStuck(f"{TURNS_MAX} turns without any time passing; {runnable[0].name} always has work")
        return runnable[int(self._order.uniform(0, count)) if count > 1 else 0]

    def _occupy(self, process: SimulatedProcess) -> None:
        """Let the last turn of a process take time: other processes run meanwhile, and its events wait."""

        def free() -> None:
            process.is_busy = False
            self.wake(process)

        process.is_busy = True
        self.rest(process)
        taken_s = self._processors.uniform(0, 2 * process.turn_s)
        self.call_later(taken_s, free, context=self.outside.context)

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise SimulationStuck("all tasks wait, and no timer is pending")
        self._now_s = max(self._now_s, timers[0][0])
        self._turns = 0
        self._fire()

    def _fire(self) -> None:
        timers, now_s = self._timers, self._now_s
        while timers and timers[0][0] <= now_s:
            _, _, timer, process = heapq.heappop(timers)
            timer.waits = False
            if timer.cancelled():
                self._cancelled_timers -= 1
            else:
                self._queue(timer, process)

    def _queue(self, handle: asyncio.Handle, process: SimulatedProcess) -> None:
        if not process.is_alive:
            process.remains.append(handle)
            return
        process.ready.append(handle)
        if not process.is_runnable and not process.paused and not process.is_busy:
            process.is_runnable = True
            self._runnable.append(process)

    # The interface of asyncio loops.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in its process's next turn."""
        context = copy_context() if context is None else context
        handle = _Ready(callback, args, self, context)
        node = context.get(NODE)
        self._queue(handle, node if isinstance(node, SimulatedProcess) else self.outside)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Like `call_soon`. Errors: OutsideSimulation from another thread."""
        if threading.get_ident() != self._thread_id:
            _outside("a thread")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` at this virtual time; callbacks of one time run in the order of their calls."""
        context = copy_context() if context is None else context
        timer = _Timer(when, callback, args, self, context)
        self._timer_number += 1
        node = context.get(NODE)
        process = node if isinstance(node, SimulatedProcess) else self.outside
        heapq.heappush(self._timers, (when, self._timer_number, timer, process))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` after `delay` virtual seconds."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def create_future(self) -> NumberedFuture:
        """A future of this loop."""
        future = NumberedFuture(loop=self)
        self._task_number = future.number = self._task_number + 1
        return future

    def create_task(  # type: ignore[override]  # every task here is a numbered one
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> NumberedTask:
        """Run `coro` in its own context, or in `context`."""
        context = copy_context() if context is None else context
        self._task_number += 1
        process = process_of(context) or self.outside
        return NumberedTask(coro, number=self._task_number, process=process, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Run `func` on this thread after a drawn time; for one executor, in the order of the calls."""
        answer: asyncio.Future[T] = self.create_future()
        process = current_process() or self.outside
        free_at_s = process.executors_free_at_s.get(id(executor), 0.0)
        begins_at_s = max(free_at_s, self._now_s) + self._drawn(CALL_BEGINS_S)
        ends_at_s = begins_at_s + self._drawn(CALL_TAKES_S)
        process.executors_free_at_s[id(executor)] = ends_at_s

        def begin() -> None:
            if answer.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:
                self.call_at(ends_at_s, _fail, answer, error)
            else:
                self.call_at(ends_at_s, _answer, answer, result)

        self.call_at(begins_at_s, begin)
        return answer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception that no code caught, unless its process is dead."""
        process = current_process()
        if process is None or process.is_alive:
            super().call_exception_handler(context)

    def close(self) -> None:
        """Drop all state."""
        self._timers.clear()
        self._runnable.clear()
        super().close()

    def _drawn(self, between: tuple[float, float]) -> float:
        return self._executors.uniform(*between)

    def _timer_handle_cancelled(self, handle: "_Timer") -> None:
        if handle.waits:
            self._cancelled_timers += 1
            if self._cancelled_timers > CANCELLED_MIN and self._cancelled_timers * 2 > len(self._timers):
                self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
                heapq.heapify(self._timers)
                self._cancelled_timers = 0

    # Asynchronous generators are finalized by the process that began them, not by the collector.

    def _asyncgen_firstiter_hook(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(generator)] = current_process() or self.outside

    def _asyncgen_finalizer_hook(self, generator: AsyncGenerator[Any, Any]) -> None:
        process = self._generators.pop(id(generator), self.outside)
        if process.is_alive:
            process.spawn("finalize", _aclose(generator))
        else:
            process.remains.append(generator)

    # The real world.

    def _write_to_self(self) -> None:
        """Do nothing: the loop never waits in a system call."""

    async def getaddrinfo(self, *_: Any, **__: Any) -> NoReturn:
        """Errors: OutsideSimulation."""
        _outside("a resolver")

    async def create_connection(self, *_: Any, **__: Any) -> NoReturn:
        """Errors: OutsideSimulation."""
        _outside("a connection")

    async def create_server(self, *_: Any, **__: Any) -> NoReturn:
        """Errors: OutsideSimulation."""
        _outside("a listening socket")

    async def subprocess_exec(self, *_: Any, **__: Any) -> NoReturn:
        """Errors: OutsideSimulation."""
        _outside("another process")


async def _aclose(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


def _answer(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _outside(what: str) -> NoReturn:
    raise OutsideSimulation(f"{what} is not available in the simulation")

"""A machine: its clock, and its processes, one after another, that run the same program."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.process.containment import waiting_place
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.kernel.process import SimulatedProcess
from ortoo.testing.simulation.world import World

RESTART_S = 1.0
"""The time until a supervisor restarts a process that ended on its own."""

Work = Callable[["Machine"], Coroutine[Any, Any, None]]


class Machine:
    """A machine and the program that runs on it."""

    def __init__(self, world: World, name: str) -> None:
        """A machine that is switched off."""
        self.world = world
        self.name = name
        self.clock = world.machine_clock(name)
        self.process: SimulatedProcess | None = None
        """The running process; None while there is none."""
        self.ready = asyncio.Event()
        """Set while the program is ready."""
        self.turn_s = 0.0
        """The mean duration of a turn of its processes: 0 = no time at all."""
        self.incarnations = 0
        self._chances = 0
        self.should_run = False
        """Whether it should run: a supervisor restarts a process that ends."""
        self._stop = asyncio.Event()
        self._is_removed = asyncio.Event()
        """Set when the process has ended, for whatever reason."""

    def randomness(self) -> Randomness:
        """Randomness for a new process. Each call gives another stream, so that two clients have different ids."""
        self._chances += 1
        again = f" {self._chances}" if self._chances > 1 else ""
        return self.world.random_streams.stream(f"{self.name} life {self.incarnations}{again}")

    @property
    def alive(self) -> bool:
        """Whether a process runs, or is paused."""
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Switch it on; does nothing when it is on."""
        self.should_run = True
        if self.alive:
            return
        self.incarnations += 1
        self._chances = 0
        self._stop, self.ready, self._is_removed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.world.network.machine_on(self.name)
        process = self.process = self.world.process(f"{self.name}#{self.incarnations}")
        process.turn_s = self.turn_s
        self.note("start")
        main = self._main = process.spawn("main", self.work())
        main.add_done_callback(self._ended, context=self.world.loop.outside.context)

    async def stop(self) -> None:
        """Ask the program to end, as SIGTERM does, and wait until it has."""
        self.should_run = False
        if not self.alive:
            return
        self.note("stop")
        self._stop.set()
        await self._is_removed.wait()

    def kill(self) -> None:
        """End the process as SIGKILL does: its peers see their connections break."""
        self._end("kill")

    def cut_power(self) -> None:
        """End everything as a power cut does: its peers receive nothing further."""
        self._end("power cut", silently=True)

    def pause(self) -> None:
        """Stop the process as SIGSTOP does."""
        if self.process is not None:
            self.note("pause")
            self.process.pause()

    def resume(self) -> None:
        """Let it continue."""
        if self.process is not None:
            self.note("resume")
            self.process.resume()

    def slow(self, turn_s: float) -> None:
        """Set the mean duration of each turn of its processes; 0 = no time at all."""
        self.turn_s = turn_s
        if self.process is not None:
            self.process.turn_s = turn_s

    def note(self, what: str) -> None:
        """Record an event of this machine in the trace."""
        self.world.trace.add(self.world.loop.time(), "machine", self.name, what)

    async def work(self) -> None:
        """The program. It calls `self.ready.set()`, and ends after `stopping` returns."""
        raise NotImplementedError

    async def stopping(self) -> None:
        """Wait until the program is asked to end."""
        await self._stop.wait()

    def may_exit_with(self, error: BaseException) -> bool:
        """Whether the program may end with this error before it is ready: one that a process reports in one line."""
        return isinstance(error, OrtooError | OSError)

    def may_crash_with(self, error: BaseException) -> bool:
        """Whether the program may end with this error at any time; a supervisor restarts it."""
        return False

    def _end(self, how: str, *, silently: bool = False) -> None:
        self.should_run = False
        process, self.process = self.process, None
        if process is None or not process.is_alive:
            return
        self.note(how)
        if silently:
            self.world.network.machine_off(self.name)
        process.kill(silently=silently)
        self.world.redis.on_process_killed(process)
        self.ready.clear()
        self._is_removed.set()

    def _ended(self, main: "asyncio.Task[None]") -> None:
        """The program returned or raised: an unexpected end, unless a stop was requested."""
        process, self.process = self.process, None
        was_ready = self.ready.is_set()
        self.ready.clear()
        self._is_removed.set()
        error = None if main.cancelled() else main.exception()
        self.note(f"ended {error!r}")
        if process is not None:
            left = [
                f"{task.get_name()} ({waiting_place(task)})"
                for task in process.tasks()
                if task is not main and not task.cancelling()  # a cancelled task ends with the loop's next turn
            ]
            if left and error is None:
                self.world.violations.add("no task is left behind", f"{self.name} ended and left {left[:5]}")
            process.kill()
            self.world.redis.on_process_killed(process)
        asked = self._stop.is_set()
        may_end = self.may_exit_with(error) and not (was_ready or asked) if error is not None else False
        if error is not None and not may_end and not self.may_crash_with(error):
            self.world.violations.add("no process ends unexpectedly", f"{self.name} ended with {_said(error)}")
        elif error is None and not asked:
            self.world.violations.add("no process ends unexpectedly", f"{self.name} ended without being asked to")
        if self.should_run and not asked:
            self.world.loop.call_later(RESTART_S, self._again, context=self.world.loop.outside.context)

    def _again(self) -> None:
        if self.should_run and not self.alive:
            self.start()


def _said(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}({', '.join(map(_said, error.exceptions))})"
    return repr(error)

"""The event loop of a test with a broker: virtual time with a limit, and threads for the test's blocking calls."""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple

from ortoo.common.process.containment import waiting_place
from ortoo.testing.pytest_broker.durations import format_duration
from ortoo.testing.pytest_broker.message_trace import TEST
from ortoo.testing.pytest_broker.threads import TurnTakingThread
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.process import SimulatedProcess, current_process
from ortoo.testing.simulation.kernel.random_streams import RandomStreams

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
LONG_S = 15.0
"""A longer timer of the test is an event to wait for; a shorter one is housekeeping."""
CLIENTS_LONG_S = 60.0
"""The same limit for timers of the client library, which refreshes routes every half minute."""
GRPC = "ortoo.testing.memory_grpc"


class BrokerTimeout(Exception):
    """The test waits for an event that time alone does not bring."""


class BrokerLoop(VirtualLoop):
    """The loop of a simulated run, for an application's own test."""

    def __init__(self, chances: RandomStreams, *, patience_s: float) -> None:
        """`timeout_s` is the virtual time that may pass automatically; time that a test advances does not count."""
        super().__init__(chances)
        self.timeout_s = patience_s
        self.threads: dict[int, TurnTakingThread] = {}
        """Running threads of the test, by their identity."""
        self.in_client = False
        """Whether the client library sets the current timer."""
        self._limit_s = patience_s
        self._long: list[asyncio.TimerHandle] = []

    def allow_advance(self, seconds: float) -> None:
        """The test advances the clock by `seconds`; the patience starts again after that."""
        self._limit_s = self.time() + seconds + self.timeout_s

    def next_timer_s(self) -> float | None:
        """The time of the first long timer of the test itself, such as one of `asyncio.sleep(3600)`."""
        self._long = [timer for timer in self._long if not timer.cancelled() and timer.when() > self.time()]
        return min((timer.when() for timer in self._long), default=None)

    def wait_for(self, timer: asyncio.TimerHandle) -> None:
        """Do not leap past this timer."""
        self._long.append(timer)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Like `VirtualLoop.call_at`."""
        timer = super().call_at(when, callback, *args, context=context)
        if when - self.time() >= (CLIENTS_LONG_S if self.in_client else LONG_S) and is_of_test(current_process()):
            module = getattr(callback, "__module__", "") or ""
            if not module.startswith(GRPC):
                self.wait_for(timer)
        return timer

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """For the test, run `func` in a thread that takes turns with the loop, so that it may block."""
        if not is_of_test(current_process()):
            return super().run_in_executor(executor, func, *args)
        answer: asyncio.Future[T] = self.create_future()
        context = copy_context()
        thread = TurnTakingThread(self, lambda: context.run(func, *args), answer)
        self.call_soon(thread.take_turn)
        return answer

    def _pass_time(self) -> None:
        super()._pass_time()
        if self.time() > self._limit_s:
            self._limit_s = self.time() + self.timeout_s  # so that fixtures can end in order
            raise BrokerTimeout(
                f"{format_duration(self.timeout_s)} of virtual time passed and the test still waits"
                f"{self._where()}. Either the event never happens, or the test must advance the clock: "
                'broker.clock.advance("1h"). More patience: @pytest.mark.ortoo(patience="3h")'
            )

    def _where(self) -> str:
        for task in sorted(asyncio.all_tasks(self), key=hash):
            if task.get_coro() is not None and is_of_test(getattr(task, "process", None)):
                return f", in {waiting_place(task)}"  # the oldest task is the test itself
        return ""


def is_of_test(process: SimulatedProcess | None) -> bool:
    """Whether this is the test's own process."""
    return process is not None and process.name == TEST

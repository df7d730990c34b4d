"""The running event loop, the machine's clock and its network, in place of a simulated world.

With it, the workload and the model of simulated runs test real processes too.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from types import SimpleNamespace
from typing import Any, cast

from ortoo.common.process.clock import SystemClock
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.testing.simulation.kernel.trace import Trace
from ortoo.testing.simulation.violations import Violations
from ortoo.testing.simulation.world import World


def real_world(seed: int) -> World:
    """A world in real time. The same seed makes the same choices, with different outcomes."""
    return cast("World", _RealWorld(seed))


class _RealWorld:
    """The parts of a world that application machines, findings and the oracle use."""

    def __init__(self, seed: int) -> None:
        self.random_streams = RandomStreams(seed)
        self.loop = _Loop(asyncio.get_running_loop())
        self.clock = SystemClock()
        self.trace = Trace()
        self.violations = Violations(cast("Any", self.loop))
        self.network = self.redis = _Untouched()

    def machine_clock(self, _: str) -> SystemClock:
        return self.clock

    def process(self, _: str) -> "_Tasks":
        return _Tasks()


class _Loop:
    """The running loop, whose time begins with the run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun_s = loop.time()
        self.outside = SimpleNamespace(context=copy_context())

    def time(self) -> float:
        return self._loop.time() - self._begun_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: Any, context: Context) -> None:
        self._loop.call_later(delay_s, callback, *arguments, context=context)


class _Tasks:
    """An application process: one task, and the tasks that it begins. It is stopped and never killed."""

    turn_s = 0.0

    def __init__(self) -> None:
        self._main: asyncio.Future[Any] | None = None

    @property
    def is_alive(self) -> bool:
        return self._main is not None and not self._main.done()

    def spawn(self, _: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any]":
        self._main = asyncio.ensure_future(work)  # noqa: TID251  # its machine hears how it ends
        return self._main

    def tasks(self) -> Sequence["asyncio.Task[Any]"]:
        return ()

    def kill(self) -> None:
        assert not self.is_alive


class _Untouched:
    """A network and a store without injected faults."""

    def lit(self, _: str) -> None:
        pass

    def gone(self, _: object) -> None:
        pass

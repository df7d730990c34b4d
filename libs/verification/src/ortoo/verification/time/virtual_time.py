"""Tests whose time passes only when all tasks wait: an endless wait fails at once, and sleeps take no real time."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from ortoo.testing.simulation.kernel.clock import RunClock
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.random_streams import RandomStreams

P = ParamSpec("P")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test on a loop of its own, which begins at time 0."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(RandomStreams(1))) as runner:
            runner.run(test(*args, **kwargs))

    return run


def running_clock() -> RunClock:
    """The clock of the caller's loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return RunClock(loop)

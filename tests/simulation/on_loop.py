"""Runs one coroutine on a simulated loop, and leaves nothing behind."""

from collections.abc import Coroutine, Sequence
from typing import Any

from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.garbage import explicit_garbage_collection
from ortoo.testing.simulation.kernel.process import SimulatedProcess, dispose_all


def run(loop: VirtualLoop, work: Coroutine[Any, Any, Any], processes: Sequence[SimulatedProcess] = ()) -> Any:
    """The result of `work`, which belongs to no process. The loop is closed afterwards."""
    with explicit_garbage_collection():
        try:
            return loop.run_until_complete(loop.create_task(work, context=loop.outside.context))
        finally:
            dispose_all(loop, processes)
            loop.close()

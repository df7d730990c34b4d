"""One run's world: time, randomness, the network, the neighbours, and the findings."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any, TextIO

from ortoo.common.cluster.process_name import using_process_name
from ortoo.common.grpc.transport import using_transport
from ortoo.testing.simulation.dependencies.database import SimulatedDatabase
from ortoo.testing.simulation.dependencies.redis import SimulatedRedis, virtual_redis_time
from ortoo.testing.simulation.kernel.clock import MachineClock, RunClock
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.garbage import explicit_garbage_collection
from ortoo.testing.simulation.kernel.process import SimulatedProcess, dispose_all
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.testing.simulation.kernel.trace import Trace
from ortoo.testing.simulation.network import SimulatedNetwork
from ortoo.testing.simulation.violations import Violations


class World:
    """Everything that a run has, besides its machines."""

    def __init__(
        self,
        seed: int,
        *,
        trace_file: TextIO | None = None,
        name_servers: int = 1,
        make_loop: Callable[[RandomStreams], VirtualLoop] = VirtualLoop,
    ) -> None:
        """A world in which nothing has happened yet."""
        self.random_streams = RandomStreams(seed)
        self.loop = make_loop(self.random_streams)
        self.clock = RunClock(self.loop)
        self.trace = Trace(trace_file)
        self.violations = Violations(self.loop)
        self.network = SimulatedNetwork(self.loop, self.random_streams, self.trace)
        self.redis = SimulatedRedis(self.loop, self.random_streams)
        self.database = SimulatedDatabase(self.random_streams.stream("database"), shared=name_servers > 1)
        self.processes: list[SimulatedProcess] = []
        """All processes of the run, including ended ones."""
        self.loop.set_exception_handler(self._uncaught)

    def machine_clock(self, name: str) -> MachineClock:
        """The clock of a machine."""
        return MachineClock(self.loop, self.random_streams.stream(f"clock {name}"))

    def process(self, name: str) -> SimulatedProcess:
        """A new process. Its name is never used again in this run."""

        def made() -> SimulatedProcess:
            with using_process_name(name), using_transport(self.network.transport):
                return SimulatedProcess(self.loop, name)

        process = copy_context().run(made)  # all code in the process finds its name and network in its context
        self.processes.append(process)
        return process

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The duration of the run; at its end everything left is closed."""
        with explicit_garbage_collection():
            try:
                with virtual_redis_time(self.loop):
                    yield
            finally:
                dispose_all(self.loop, self.processes)
                self.database.close()
                self.loop.close()

    def _uncaught(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.violations.add("no error is lost", f"{context.get('message')}: {error!r}")

"""The work of a simulated cluster, counted and not timed: of each machine, and of its database and Redis.

`Meter.counting` counts within a block. The keys of its result are a role and a measure, such as `snode lines`:

* `lines`: executed lines of Python, so a loop counts each of its rounds
* `turn_bytes`: the most memory that one turn of the event loop added. A copy of a large container shows here, although
  it is one line
* `messages`, `sent_bytes`: packets with a message that the role sent to others
* `written_bytes`: bytes that enodes wrote to their disks
* `database steps`: instructions of SQLite's virtual machine, a few for each touched row
* `redis requests`

Lines and memory make a run several times slower. In a large cluster they are counted for some machines only.
"""

import sys
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from ortoo.testing.memory_grpc import Packet
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.testing.simulation.disk.platter import FaultInjectionDisk
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.process import SimulatedProcess
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.testing.simulation.world import World

ROLES = ("namesrv", "enode", "snode")
APPLICATION = "application"
NOT_COUNTED = ("/ortoo/testing/", "/ortoo/verification/", "/fakeredis/", "/growth/meter.py", "<frozen")
"""Parts of the names of files that belong to the simulation and not to the product."""
STEPS_AT_ONCE = 10
"""SQLite reports its instructions in groups of this size."""
LARGEST = ("turn_bytes",)
"""Measures of which a role has the largest value of its machines, and not the sum."""


def machine_of(process: str) -> str:
    """The machine of a process: `enode-3` of `enode-3#1`."""
    return process.partition("#")[0]


def role_of(machine: str) -> str:
    """The role of a machine, by its name: `enode` of `enode-3`."""
    role = machine.partition("-")[0]
    return role if role in ROLES else APPLICATION


@cache
def _is_counted(file_name: str) -> bool:
    return not any(part in file_name for part in NOT_COUNTED)


class _Turns:
    """The turns of one machine."""

    __slots__ = ("functions", "turn_bytes")

    def __init__(self) -> None:
        self.functions: Counter[str] = Counter()
        """Executed lines of each function."""
        self.turn_bytes = 0

    def trace_call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self.trace_line if _is_counted(frame.f_code.co_filename) else None

    def trace_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            # By name, because the hash of a code object is computed again each time.
            self.functions[frame.f_code.co_qualname] += 1
        return self.trace_line


class MeteredLoop(VirtualLoop):
    """A loop that tells a meter which process takes the next turn."""

    def __init__(self, chances: RandomStreams) -> None:
        """A loop without a meter."""
        super().__init__(chances)
        self.meter: Meter | None = None

    def _next_process(self) -> SimulatedProcess | None:
        process = super()._next_process()
        if self.meter is not None and process is not None:
            self.meter.begin_turn(process)
        return process


class Meter:
    """Counts the work of one cluster."""

    def __init__(
        self, world: World, cluster: SimulatedCluster, is_traced: Callable[[str], bool] = lambda machine: True
    ) -> None:
        """Count nothing until `counting`. Lines and memory are counted for machines for which `is_traced` holds."""
        self._world = world
        self._cluster = cluster
        self._is_traced = is_traced
        self._turns: dict[str, _Turns | None] = {}
        self._current: _Turns | None = None
        self.machines: dict[str, Counter[str]] = {}
        """The work of each machine in the last block, by measure."""
        self.functions: dict[str, Counter[str]] = {}
        """The executed lines of each function in the last block, by machine."""

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the work within the block; the result is complete at its end. Blocks do not nest."""
        found: Counter[str] = Counter()
        loop, redis, database = self._world.loop, self._world.redis, self._world.database
        assert isinstance(loop, MeteredLoop)
        self._turns = {}
        self.machines, self.functions = defaultdict(Counter), {}
        written = self._written()
        arrive = redis.arrive

        def arrived(work: Callable[[], None]) -> None:
            found["redis requests"] += 1
            arrive(work)

        def step() -> None:
            found["database steps"] += STEPS_AT_ONCE

        redis.arrive = arrived  # type: ignore[method-assign]
        self._world.network.watchers[self._see] = None
        connection = database._raw()
        connection.set_progress_handler(step, STEPS_AT_ONCE)
        previous = sys.gettrace()
        loop.meter = self
        try:
            yield found
        finally:
            loop.meter = None
            self._end_turn()
            sys.settrace(previous)
            connection.set_progress_handler(None, 0)
            del self._world.network.watchers[self._see]
            redis.arrive = arrive  # type: ignore[method-assign]
            self._collect(written)
            for machine, measures in self.machines.items():
                for measure, cost in measures.items():
                    key = f"{role_of(machine)} {measure}"
                    found[key] = max(found[key], cost) if measure in LARGEST else found[key] + cost

    def begin_turn(self, process: SimulatedProcess) -> None:
        """A process takes a turn: the work until the next one is that of its machine."""
        self._end_turn()
        machine = machine_of(process.name)
        if machine not in self._turns:
            self._turns[machine] = _Turns() if self._is_traced(machine) else None
        self._current = turns = self._turns[machine]
        if turns is not None:
            tracemalloc.start()
            sys.settrace(turns.trace_call)

    def _end_turn(self) -> None:
        if self._current is not None:
            sys.settrace(None)
            self._current.turn_bytes = max(self._current.turn_bytes, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            self._current = None

    def _see(self, source: str, target: str, packet: Packet) -> bool:
        """Count a packet; it is not dropped."""
        if packet.message is not None:
            measures = self.machines[source]
            measures["messages"] += 1
            measures["sent_bytes"] += packet.size_bytes
        return False

    def _collect(self, written: dict[str, tuple[FaultInjectionDisk, int]]) -> None:
        """Add the lines and memory of all turns, and the bytes that running processes have written since `written`."""
        for machine, turns in self._turns.items():
            if turns is not None:
                self.machines[machine]["lines"] = turns.functions.total()
                self.machines[machine]["turn_bytes"] = turns.turn_bytes
                self.functions[machine] = turns.functions
        for name, (disk, written_bytes) in self._written().items():
            known, before_bytes = written[name]
            self.machines[name]["written_bytes"] = written_bytes - (before_bytes if disk is known else 0)

    def _written(self) -> dict[str, tuple[FaultInjectionDisk, int]]:
        """The disk of each running process, and the bytes written to it."""
        disks = {one.name: one.disk.current.platter for one in self._cluster.stores}
        return {name: (disk, disk.written_bytes) for name, disk in disks.items()}

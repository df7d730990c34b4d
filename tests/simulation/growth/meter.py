"""The work of a simulated cluster, counted and not timed: for each role, and for its database and Redis.

`Meter.counting` counts within a block. The keys of its result are a role and a measure, such as `snode lines`:

* `lines`: executed lines of Python, so a loop counts each of its rounds
* `turn_bytes`: the most memory that one turn of the event loop added. A copy of a large container shows here, although
  it is one line
* `messages`, `sent_bytes`: packets with a message that the role sent to others
* `written_bytes`: bytes that enodes wrote to their disks
* `database steps`: instructions of SQLite's virtual machine, a few for each touched row
* `redis requests`
"""

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
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
NOT_COUNTED = ("/ortoo/testing/", "/ortoo/verification/", "/fakeredis/", "<frozen")
"""Parts of the names of files that belong to the simulation and not to the product."""
STEPS_AT_ONCE = 10
"""SQLite reports its instructions in groups of this size."""


def role_of(machine: str) -> str:
    """The role of a machine, by its name: `enode-3`, or `enode-3#1` for its first process."""
    role = machine.partition("-")[0]
    return role if role in ROLES else APPLICATION


class _RoleWork:
    """The lines and the largest turn of one role."""

    __slots__ = ("lines", "turn_bytes")

    def __init__(self) -> None:
        self.lines = 0
        self.turn_bytes = 0


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

    def __init__(self, world: World, cluster: SimulatedCluster) -> None:
        """Count nothing until `counting`."""
        self._world = world
        self._cluster = cluster
        self._work: dict[str, _RoleWork] = {}
        self._current = _RoleWork()
        self._counted: dict[CodeType, bool] = {}
        self._turn_began_bytes = 0
        self._traffic: Counter[str] = Counter()
        self.lines_of: Counter[CodeType] = Counter()
        """Executed lines of each function, in the last block."""

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the work within the block; the result is complete at its end. Blocks do not nest."""
        work: Counter[str] = Counter()
        loop, redis, database = self._world.loop, self._world.redis, self._world.database
        assert isinstance(loop, MeteredLoop)
        self._work, self._current = {}, _RoleWork()
        traffic: Counter[str] = Counter()
        self._traffic = traffic
        self.lines_of.clear()
        written = self._written()
        arrive = redis.arrive

        def arrived(work: Callable[[], None]) -> None:
            traffic["redis requests"] += 1
            arrive(work)

        def step() -> None:
            traffic["database steps"] += STEPS_AT_ONCE

        redis.arrive = arrived  # type: ignore[method-assign]
        self._world.network.watchers[self._see] = None
        connection = database._raw()
        connection.set_progress_handler(step, STEPS_AT_ONCE)
        loop.meter = self
        tracemalloc.start()
        self._turn_began_bytes = 0
        previous = sys.gettrace()
        sys.settrace(self._trace_call)
        try:
            yield work
        finally:
            sys.settrace(previous)
            tracemalloc.stop()
            loop.meter = None
            connection.set_progress_handler(None, 0)
            del self._world.network.watchers[self._see]
            redis.arrive = arrive  # type: ignore[method-assign]
            for role, done in self._work.items():
                work[f"{role} lines"] = done.lines
                work[f"{role} turn_bytes"] = done.turn_bytes
            work.update(traffic)
            work["enode written_bytes"] = self._written_since(written)

    def begin_turn(self, process: SimulatedProcess) -> None:
        """A process takes a turn: the work until the next one is that of its role."""
        now_bytes, peak_bytes = tracemalloc.get_traced_memory()
        self._current.turn_bytes = max(self._current.turn_bytes, peak_bytes - self._turn_began_bytes)
        tracemalloc.reset_peak()
        self._turn_began_bytes = now_bytes
        role = role_of(process.name)
        if role not in self._work:
            self._work[role] = _RoleWork()
        self._current = self._work[role]

    def _trace_call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        counted = self._counted.get(code)
        if counted is None:
            counted = self._counted[code] = not any(part in code.co_filename for part in NOT_COUNTED)
        return self._trace_line if counted else None

    def _trace_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._current.lines += 1
            self.lines_of[frame.f_code] += 1
        return self._trace_line

    def _see(self, source: str, target: str, packet: Packet) -> bool:
        """Count a packet; it is not dropped."""
        if packet.message is not None:
            role = role_of(source)
            self._traffic[f"{role} messages"] += 1
            self._traffic[f"{role} sent_bytes"] += packet.size_bytes
        return False

    def _disks(self) -> list[FaultInjectionDisk]:
        return [one.disk.current.platter for one in self._cluster.stores]

    def _written(self) -> dict[int, tuple[FaultInjectionDisk, int]]:
        return {id(disk): (disk, disk.written_bytes) for disk in self._disks()}

    def _written_since(self, before: dict[int, tuple[FaultInjectionDisk, int]]) -> int:
        """Bytes written by processes that have run all the time, and by those that were started meanwhile."""
        return sum(disk.written_bytes - before.get(id(disk), (disk, 0))[1] for disk in self._disks())

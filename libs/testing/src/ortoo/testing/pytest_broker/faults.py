"""Faults of a broker: each one ends with its `with` block, or by `end()`."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from ortoo.testing.memory_grpc import Packet
from ortoo.testing.pytest_broker.loop import BrokerLoop
from ortoo.testing.pytest_broker.message_trace import TEST
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.testing.simulation.cluster.machine import Machine

ROLES = ("namesrv", "enode", "snode")
SENDING = ("Publish", "Produce", "EndTransaction", "BeginTransaction", "SendMessage")
"""The calls that send messages, of Ortoo's protocol and of RocketMQ's."""


class ActiveFault:
    """A fault in effect."""

    def __init__(self, undo: Callable[[], object]) -> None:
        """`undo` is called once."""
        self._undo: Callable[[], object] | None = undo

    def end(self) -> None:
        """End the fault; the second call does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()


class LostResponses(ActiveFault):
    """Lost answers to sends: the message is stored, and its sender gets no answer."""

    def __init__(self, undo: Callable[[], object]) -> None:
        """Start with a count of zero."""
        super().__init__(undo)
        self.lost = 0
        """The number of lost answers."""


class Faults:
    """Injects faults into a broker."""

    def __init__(self, cluster: SimulatedCluster, loop: BrokerLoop) -> None:
        """Inject faults into these machines."""
        self._loop = loop
        self._network = cluster.world.network
        self._world = cluster.world
        self._enode = cluster.enodes[0]
        self._machines: dict[str, Machine] = dict(
            zip(ROLES, (cluster.name_servers[0], cluster.enodes[0], cluster.snodes[0]), strict=True)
        )

    def machine(self, role: str) -> Machine:
        """The machine of a role. Errors: ValueError."""
        if role not in self._machines:
            raise ValueError(f"{role!r} is not a role of the broker; expected one of {', '.join(ROLES)}")
        return self._machines[role]

    def kill(self, role: str, back_after_s: float | None) -> None:
        """Kill a process like SIGKILL; it starts again after `back_after_s`, unless that is None."""
        machine = self.machine(role)
        machine.kill()
        if back_after_s is not None:
            self._loop.wait_for(self._loop.call_later(back_after_s, machine.start, context=self._loop.outside.context))

    def freeze(self, role: str) -> ActiveFault:
        """Stop a process like SIGSTOP."""
        machine = self.machine(role)
        machine.pause()
        return ActiveFault(machine.resume)

    def isolate(self, role: str) -> ActiveFault:
        """Cut a machine off the network."""
        name = self.machine(role).name
        self._note(f"isolate {name}")
        return ActiveFault(self._network.isolate(name))

    def slow_network(self, factor: float) -> ActiveFault:
        """Slow the network between the test and the broker down by `factor`."""
        self._note(f"network slower by {factor:g}")
        return ActiveFault(self._network.slow(TEST, factor))

    def slow_disk(self, factor: float) -> ActiveFault:
        """Slow the enode's disk down by `factor`."""
        latency, before = self._enode.disk.latency, self._enode.disk.latency.factor
        latency.factor = factor
        self._note(f"disk slower by {factor:g}")
        return ActiveFault(lambda: setattr(latency, "factor", before))

    def full_disk(self) -> ActiveFault:
        """Fill the enode's disk."""
        self._note("disk full")
        disk = self._enode.disk
        disk.current.full_after(0)
        return ActiveFault(lambda: disk.current.heal())

    def lose_responses(self, count: int, kill: str | None, back_after_s: float | None) -> LostResponses:
        """Lose the next answers to sends with their connection, and kill a role at the first one."""
        if kill is not None:
            self.machine(kill)

        def loses(source: str, target: str, packet: Packet) -> bool:
            is_answer = target == TEST and packet.message is not None
            if not is_answer or packet.method.rpartition("/")[2] not in SENDING:
                return False
            if fault.lost == count:
                return False
            fault.lost += 1
            self._note(f"the answer of {source} to {packet.method} is lost")
            if fault.lost == 1 and kill is not None:
                self._loop.call_soon(self.kill, kill, back_after_s, context=self._loop.outside.context)
            return True

        fault = LostResponses(lambda: self._network.watchers.pop(loses, None))
        self._network.watchers[loses] = None
        return fault

    def _note(self, what: str) -> None:
        self._world.trace.add(self._world.loop.time(), "fault", what)

"""The network between machines: delays, reachability and faults."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.testing.memory_grpc import MemoryConnection, MemoryTransport, Node, Packet
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.fingerprint import fingerprint
from ortoo.testing.simulation.kernel.random_streams import RandomStreams, happens
from ortoo.testing.simulation.kernel.trace import Trace

USUAL_S = (0.000_1, 0.002)
SELDOM_S = (0.002, 0.05)
"""The delay of a packet that was retransmitted or queued."""
SELDOM = 0.01
OUTSIDE = "outside"
Undo = Callable[[], object]
Watcher = Callable[[str, str, Packet], bool]
"""Called with the sending machine, the receiving machine and the packet."""


@dataclass(slots=True, eq=False)
class _Trap:
    machine: str
    left: int
    happen: Callable[[], object]


class SimulatedNetwork:
    """The `Network` of a run's transport, and its faults. Machines are identified by name, across their processes."""

    def __init__(self, loop: VirtualLoop, chances: RandomStreams, trace: Trace) -> None:
        """A network without faults."""
        self.transport = MemoryTransport(self)
        self._loop = loop
        self._trace = trace
        self._chance = chances.stream("network")
        self._places: dict[str, str] = {}
        self._connections: dict[MemoryConnection, tuple[str, str]] = {}
        self._parted: dict[int, tuple[str, str]] = {}
        self._partings = 0
        self._slow: dict[str, float] = {}
        self._late: dict[tuple[str, str], float] = {}
        self._slow_readers: dict[str, float] = {}
        self._breaking: dict[str, float] = {}
        self._dark: dict[str, None] = {}
        self._traps: list[_Trap] = []
        self.watchers: dict[Watcher, None] = {}
        """Watchers of each packet before it leaves; one that returns True drops it, with its connection."""

    # Called by machines.

    def set_address(self, machine: str, address: str) -> None:
        """Assign this address to a machine."""
        self._places[address] = machine

    def machine_off(self, machine: str) -> None:
        """A machine is off: it neither refuses connections nor answers."""
        self._dark[machine] = None

    def machine_on(self, machine: str) -> None:
        """It is on again; peers of its earlier processes are reset when they next send."""
        if self._dark.pop(machine, "on") is None:
            for connection, ends in tuple(self._connections.items()):
                if machine in ends:
                    connection.reset()

    # Faults; each returns the function that undoes it.

    def partition(self, machine: str, other: str, *, both_ways: bool) -> Undo:
        """Drop packets from `machine` to `other`, or both ways."""
        numbers = [self._parting(machine, other)]
        if both_ways:
            numbers.append(self._parting(other, machine))
        return lambda: self._join(numbers)

    def isolate(self, machine: str) -> Undo:
        """Cut a machine off from all others."""
        numbers = [self._parting(machine, "*"), self._parting("*", machine)]
        return lambda: self._join(numbers)

    def slow(self, machine: str, factor: float) -> Undo:
        """Slow all packets from and to a machine down by `factor`."""
        self._slow[machine] = factor
        return lambda: self._slow.pop(machine, None)

    def delay(self, machine: str, other: str, seconds: float) -> Undo:
        """Let all packets from `machine` to `other` arrive later by `seconds`."""
        self._late[machine, other] = seconds
        return lambda: self._late.pop((machine, other), None)

    def read_slowly(self, machine: str, seconds: float) -> Undo:
        """Delay a machine's reports of read bytes by `seconds`."""
        self._slow_readers[machine] = seconds
        return lambda: self._slow_readers.pop(machine, None)

    def break_often(self, machine: str, probability: float) -> Undo:
        """Let each packet of a machine break its connection with this probability, and be lost."""
        self._breaking[machine] = probability
        return lambda: self._breaking.pop(machine, None)

    def reset(self, machine: str) -> None:
        """Break all connections of a machine."""
        for connection, ends in tuple(self._connections.items()):
            if machine in ends:
                connection.reset()

    def after_packets(self, machine: str, count: int, patience_s: float, happen: Callable[[], object]) -> None:
        """Call `happen` at the machine's `count`th packet from now, or after `patience_s`."""
        trap = _Trap(machine, count, happen)
        self._traps.append(trap)
        self._loop.call_later(patience_s, self._spring, trap, context=self._loop.outside.context)

    def heal(self) -> None:
        """End all faults."""
        self._slow.clear()
        self._late.clear()
        self._slow_readers.clear()
        self._breaking.clear()
        self._join(list(self._parted))

    def open_calls(self, machine: str) -> int:
        """The number of calls of a machine's clients that at least one end has not left."""
        mine = [one for one, (client, _) in self._connections.items() if client == machine and not one.is_lost]
        return sum(one.open_calls for one in mine)

    # Called by the transport.

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        """Seconds until a connection is made or refused; None when there is no answer."""
        client, server = _machine(source), self._places.get(address) or _machine(target)
        if server in self._dark or self._is_parted(client, server) or self._is_parted(server, client):
            return None
        return (self._drawn_s(client, server) + self._drawn_s(server, client)) * 1.5

    def connected(self, connection: MemoryConnection) -> None:
        """A connection was made."""
        for known in [known for known in self._connections if known.is_lost]:
            del self._connections[known]
        ends = _machine(connection.client.endpoint.node), _machine(connection.server.endpoint.node)
        self._connections[connection] = ends
        self._hold(connection, ends)

    def delay_s(self, connection: MemoryConnection, packet: Packet, *, to_server: bool) -> float:
        """The delay of a packet; it may be the one that breaks its connection."""
        client, server = self._connections.get(connection, (OUTSIDE, OUTSIDE))
        source, target = (client, server) if to_server else (server, client)
        if self.watchers:
            for watcher in tuple(self.watchers):
                if watcher(source, target, packet):
                    connection.reset()
                    return 0.0
        if self._breaking:
            for machine in (source, target):
                if machine in self._breaking and happens(self._chance, self._breaking[machine]):
                    connection.reset()
                    return 0.0
        if packet.read_bytes and packet.message is None and source in self._slow_readers:
            return self._slow_readers[source]
        return self._drawn_s(source, target)

    def delivered(self, connection: MemoryConnection, packet: Packet, *, to_server: bool) -> None:
        """Write a packet into the trace."""
        client, server = self._connections.get(connection, (OUTSIDE, OUTSIDE))
        source, target = (client, server) if to_server else (server, client)
        for trap in self._traps:
            if trap.machine in (source, target):
                trap.left -= 1
                if not trap.left:
                    self._loop.call_soon(self._spring, trap, context=self._loop.outside.context)
        message = packet.message
        self._trace.add(
            self._loop.time(),
            f"{source}>{target}",
            packet.method,
            "" if message is None else f"{len(message)} {fingerprint(packet.method, message)}",
            "" if packet.status is None else f"status {packet.status.code}",
            "last" if packet.is_last else "",
            "cancelled" if packet.is_cancelled else "",
        )

    def _spring(self, trap: "_Trap") -> None:
        if trap in self._traps:
            self._traps.remove(trap)
            trap.happen()

    def _drawn_s(self, source: str, target: str) -> float:
        uniform = self._chance.uniform
        low_s, high_s = SELDOM_S if uniform(0.0, 1.0) < SELDOM else USUAL_S
        drawn_s = uniform(low_s, high_s)
        if self._slow:
            drawn_s *= self._slow.get(source, 1.0) * self._slow.get(target, 1.0)
        return drawn_s + self._late.get((source, target), 0.0) if self._late else drawn_s

    def _parting(self, source: str, target: str) -> int:
        self._partings += 1
        self._parted[self._partings] = (source, target)
        for connection, ends in self._connections.items():
            self._hold(connection, ends)
        return self._partings

    def _join(self, numbers: list[int]) -> None:
        for number in numbers:
            self._parted.pop(number, None)
        for connection, (client, server) in self._connections.items():
            for to_server, parted in ((True, (client, server)), (False, (server, client))):
                if connection.is_held(to_server) and not self._is_parted(*parted):
                    connection.release(to_server=to_server)

    def _hold(self, connection: MemoryConnection, ends: tuple[str, str]) -> None:
        client, server = ends
        for to_server, parted in ((True, (client, server)), (False, (server, client))):
            if not connection.is_held(to_server) and self._is_parted(*parted):
                connection.hold(to_server=to_server)

    def _is_parted(self, source: str, target: str) -> bool:
        return source != target and any(
            one in (source, "*") and other in (target, "*") for one, other in self._parted.values()
        )


def _machine(node: Node | None) -> str:
    return OUTSIDE if node is None else node.name.partition("#")[0]

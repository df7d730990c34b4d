"""One connection between a channel and a server: its packets under way, and how it closes or breaks."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import grpc

from ortoo.testing.memory_grpc.network import Network
from ortoo.testing.memory_grpc.node import Endpoint
from ortoo.testing.memory_grpc.packet import Packet, Status

RESET_DETAILS = "recvmsg:Connection reset by peer (104)"
KILLED_DETAILS = "Socket closed"
KEEPALIVE_DETAILS = "keepalive watchdog timeout"
UNAVAILABLE: int = grpc.StatusCode.UNAVAILABLE.value[0]


class CallReceiver(Protocol):
    """One end of a call."""

    def on_packet(self, packet: Packet) -> None:
        """Handle a packet of the other end."""

    def connection_lost(self, details: str) -> None:
        """The connection is lost; no further packets arrive."""


class Owner(Protocol):
    """A channel or a server: the owner of one end of connections."""

    def connection_lost(self, connection: "MemoryConnection", details: str) -> None:
        """The connection is lost. Its calls were notified."""

    def connection_retires(self, connection: "MemoryConnection") -> None:
        """The server takes no new calls over it; open calls continue."""


@dataclass(slots=True)
class ConnectionEnd:
    """One end of a connection."""

    endpoint: Endpoint
    owner: Owner
    keepalive_s: float | None
    """The silence after which this end closes the connection; None for no limit."""
    is_open: bool = True
    calls: "dict[CallStream, CallReceiver]" = field(default_factory=dict)

    @property
    def is_receiving(self) -> bool:
        """Whether packets are delivered to this end."""
        return self.is_open and self.endpoint.is_alive


class PacketLane:
    """One direction of one call: first in, first out, independent of the network and the order of timers."""

    __slots__ = ("_connection", "_deliver", "_is_moving", "_queue", "_to_server", "last_due_s")

    def __init__(self, connection: "MemoryConnection", to_server: bool, deliver: Callable[[Packet], None]) -> None:
        """Call `deliver` with each packet when it arrives, in the context of the receiver."""
        self.last_due_s = 0.0
        """The arrival time of the last packet put in, on the loop's clock."""
        self._connection = connection
        self._to_server = to_server
        self._deliver = deliver
        self._queue: deque[tuple[float, Packet]] = deque()
        self._is_moving = False

    def put(self, packet: Packet, *, not_before_s: float = 0.0) -> None:
        """Send a packet after those before it. It is lost if the network breaks the connection at this moment."""
        connection = self._connection
        delay_s = connection.network.delay_s(connection, packet, to_server=self._to_server)
        if connection.is_lost:
            return
        now_s = connection.receiver(self._to_server).endpoint.loop.time()
        self.last_due_s = max(self.last_due_s, not_before_s, now_s + delay_s)
        self._queue.append((self.last_due_s, packet))
        self.schedule_delivery()

    def schedule_delivery(self) -> None:
        """Schedule the arrival of the first packet, unless its direction is held."""
        if self._queue and not self._is_moving and not self._connection.is_held(self._to_server):
            self._is_moving = True
            self._connection.receiver(self._to_server).endpoint.at(self._queue[0][0], self._arrive)

    def flush(self) -> None:
        """Deliver everything that is under way now."""
        while self._queue:
            self._deliver(self._queue.popleft()[1])

    def drop_all(self) -> None:
        """Drop everything that is under way."""
        self._queue.clear()

    def _arrive(self) -> None:
        self._is_moving = False
        if not self._queue or self._connection.is_held(self._to_server):
            return
        # A loop may fire a timer slightly early: the first packet is due whatever the clock shows.
        due_s = max(self._queue[0][0], self._connection.receiver(self._to_server).endpoint.loop.time())
        while self._queue and self._queue[0][0] <= due_s and not self._connection.is_held(self._to_server):
            self._deliver(self._queue.popleft()[1])
        self.schedule_delivery()


class CallStream:
    """One call on a connection: a lane in each direction."""

    __slots__ = ("_connection", "_lanes", "is_accepted")

    def __init__(self, connection: "MemoryConnection") -> None:
        self.is_accepted = False
        """Whether the server has received its first packet."""
        self._connection = connection
        self._lanes = {
            way: PacketLane(connection, way, partial(connection.deliver, self, way)) for way in (True, False)
        }

    @property
    def peer(self) -> str:
        """The client's address, as servers see it."""
        return self._connection.peer

    def lane(self, to_server: bool) -> PacketLane:
        """One direction."""
        return self._lanes[to_server]

    def send(self, packet: Packet, *, to_server: bool) -> None:
        """Send, if this end of the connection is still open."""
        if self._connection.receiver(not to_server).is_receiving:
            self._lanes[to_server].put(packet)

    def leave(self, *, at_server: bool) -> None:
        """End the call for this end, which receives nothing further."""
        self._connection.receiver(at_server).calls.pop(self, None)
        self._connection.forget(self)


class MemoryConnection:
    """Lives until an end closes it or the network breaks it. Each end may learn this at another time."""

    def __init__(
        self,
        network: Network,
        address: str,
        number: int,
        client: ConnectionEnd,
        server: ConnectionEnd,
        accept: Callable[["MemoryConnection", CallStream, Packet], None],
    ) -> None:
        """Connect to host:port `address`; `accept` gets the first packet of each call.

        `number` identifies the connection.
        """
        self.network = network
        self.address = address
        self.number = number
        self.peer = f"ipv4:127.0.0.1:{30_000 + number % 30_000}"
        self.client = client
        self.server = server
        self.is_lost = False
        """Whether packets under way are lost and nothing can be sent."""
        self._accept = accept
        self._streams: dict[CallStream, None] = {}
        self._is_held = {True: False, False: False}
        self._heals = 0
        self._control = {way: PacketLane(self, way, partial(self._on_control, way)) for way in (True, False)}

    def __repr__(self) -> str:
        return f"<Connection {self.number} to {self.address}>"

    @property
    def open_calls(self) -> int:
        """The number of calls that at least one end has not left."""
        return len(self._streams)

    # Faults that a network can inject.

    def reset(self, details: str = RESET_DETAILS) -> None:
        """Break it: packets under way are lost, even in the middle of a message, and both ends learn it at once."""
        if self.is_lost:
            return
        self._lose()
        for side in (self.client, self.server):
            if side.is_receiving:
                side.endpoint.soon(self._end, side, details)

    def hold(self, *, to_server: bool) -> None:
        """Let nothing arrive in one direction until `release`; packets wait. Held both ways it is half-open.

        An end with keepalive closes after its interval and timeout, because a held direction delays its pings or their
        answers.
        """
        self._is_held[to_server] = True
        self._watch()

    def release(self, *, to_server: bool) -> None:
        """Let packets arrive again, in order; does nothing when an end has lost its power."""
        if not (self.client.endpoint.is_alive and self.server.endpoint.is_alive):
            return
        self._is_held[to_server] = False
        self._heals += 1
        self._watch()
        for lane in (*(stream.lane(to_server) for stream in self._streams), self._control[to_server]):
            lane.schedule_delivery()

    def is_held(self, to_server: bool) -> bool:
        """Whether nothing arrives in this direction."""
        return self._is_held[to_server]

    # Called by its ends.

    def receiver(self, to_server: bool) -> ConnectionEnd:
        """The receiving end of this direction."""
        return self.server if to_server else self.client

    def open(self, call: CallReceiver) -> CallStream:
        """Begin a call; the server learns of it with its first packet."""
        stream = CallStream(self)
        self._streams[stream] = None
        self.client.calls[stream] = call
        return stream

    def deliver(self, stream: CallStream, to_server: bool, packet: Packet) -> None:
        """Deliver a packet of a call to the receiving end."""
        side = self.receiver(to_server)
        if not side.is_receiving:
            return
        self.network.delivered(self, packet, to_server=to_server)
        call = side.calls.get(stream)
        if call is not None:
            call.on_packet(packet)
        elif to_server and not stream.is_accepted:
            stream.is_accepted = True
            self._accept(self, stream, packet)

    def forget(self, stream: CallStream) -> None:
        """Drop a call that has ended at both ends."""
        if stream.is_accepted and stream not in self.client.calls and stream not in self.server.calls:
            self._streams.pop(stream, None)

    def retire(self) -> None:
        """As the server: take no new calls."""
        if self.server.is_receiving:
            self._control[False].put(Packet("", is_last=True))

    def close(self, details: str, *, at_server: bool) -> None:
        """Close it from one end, whose calls break at once; the other end learns it after all earlier packets."""
        side = self.receiver(at_server)
        if not side.is_open:
            return
        to_server = not at_server
        last_due_s = max((stream.lane(to_server).last_due_s for stream in self._streams), default=0.0)
        self._control[to_server].put(Packet("", status=Status(UNAVAILABLE, details)), not_before_s=last_due_s)
        self._end(side, details)

    def kill_end(self, *, at_server: bool, silently: bool) -> None:
        """The node of one end was killed; that end is not notified."""
        if silently:
            self.hold(to_server=True)
            self.hold(to_server=False)
        else:
            self.close(KILLED_DETAILS, at_server=at_server)

    def _on_control(self, to_server: bool, packet: Packet) -> None:
        side = self.receiver(to_server)
        if not side.is_receiving:
            return
        self.network.delivered(self, packet, to_server=to_server)
        if packet.status is None:
            side.owner.connection_retires(self)
            return
        for stream in tuple(self._streams):
            stream.lane(to_server).flush()
        self._end(side, packet.status.details)

    def _watch(self) -> None:
        """While a direction is held, let each end with keepalive time out, unless it is released before."""
        if any(self._is_held.values()):
            for side in (self.client, self.server):
                if side.is_receiving and side.keepalive_s is not None:
                    endpoint = side.endpoint
                    endpoint.at(endpoint.loop.time() + side.keepalive_s, self._give_up, side, self._heals)

    def _give_up(self, side: ConnectionEnd, heals: int) -> None:
        if heals == self._heals and side.is_receiving:
            self.close(KEEPALIVE_DETAILS, at_server=side is self.server)

    def _end(self, side: ConnectionEnd, details: str) -> None:
        if not side.is_open:
            return
        side.is_open = False
        if not (self.client.is_open or self.server.is_open):
            self._lose()
        if side.endpoint.is_alive:
            calls, side.calls = side.calls, {}
            for call in calls.values():
                call.connection_lost(details)
            side.owner.connection_lost(self, details)

    def _lose(self) -> None:
        self.is_lost = True
        for stream in self._streams:
            for to_server in (True, False):
                stream.lane(to_server).drop_all()
        for lane in self._control.values():
            lane.drop_all()
        self._streams.clear()

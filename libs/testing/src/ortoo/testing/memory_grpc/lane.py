"""One direction of one call: first in, first out, whatever the network and the order of timers do."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ortoo.testing.memory_grpc.packet import Packet

if TYPE_CHECKING:
    from ortoo.testing.memory_grpc.connection import Connection


class Lane:
    """Holds what is under way. One callback of the loop waits for its first packet, none when it is empty."""

    __slots__ = ("_connection", "_deliver", "_is_moving", "_queue", "_to_server", "last_due_s")

    def __init__(self, connection: "Connection", to_server: bool, deliver: Callable[[Packet], None]) -> None:
        """Give `deliver` each packet when it arrives, in the context of the receiver."""
        self.last_due_s = 0.0
        """When the last packet that was put in arrives, by the loop's time."""
        self._connection = connection
        self._to_server = to_server
        self._deliver = deliver
        self._queue: deque[tuple[float, Packet]] = deque()
        self._is_moving = False

    def put(self, packet: Packet, *, not_before_s: float = 0.0) -> None:
        """Send a packet after those before it. The network may break the connection over it; then it is lost."""
        connection = self._connection
        delay_s = connection.network.delay_s(connection, packet, to_server=self._to_server)
        if connection.is_lost:
            return
        now_s = connection.receiver(self._to_server).endpoint.loop.time()
        self.last_due_s = max(self.last_due_s, not_before_s, now_s + delay_s)
        self._queue.append((self.last_due_s, packet))
        self.move()

    def move(self) -> None:
        """See to it that the first packet arrives, unless its direction is held."""
        if self._queue and not self._is_moving and not self._connection.is_held(self._to_server):
            self._is_moving = True
            self._connection.receiver(self._to_server).endpoint.at(self._queue[0][0], self._arrive)

    def flush(self) -> None:
        """Deliver everything that is under way now."""
        while self._queue:
            self._deliver(self._queue.popleft()[1])

    def lose(self) -> None:
        """Forget everything that is under way."""
        self._queue.clear()

    def _arrive(self) -> None:
        self._is_moving = False
        if not self._queue or self._connection.is_held(self._to_server):
            return
        # A loop may call a timer a moment before its time: the first packet is due whatever the clock says.
        due_s = max(self._queue[0][0], self._connection.receiver(self._to_server).endpoint.loop.time())
        while self._queue and self._queue[0][0] <= due_s and not self._connection.is_held(self._to_server):
            self._deliver(self._queue.popleft()[1])
        self.move()

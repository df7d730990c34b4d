"""What calls cost, drawn from the process's budget: each call, its headers and request, and answers not taken yet.

gRPC keeps an answer until the peer's window has room for it, and goes on keeping it when the handler has long ended,
for a status travels behind the answers. A peer that reads nothing is rid of by nothing but the end of its connection;
so that is what happens to it, when the memory is used up and the friendlier end of the call did not help.
"""

import asyncio
from contextvars import ContextVar
from typing import Any

from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.grpc.around.arrival import ARRIVAL, Arrival
from ortoo.common.grpc.around.layers import OBSERVING, Call, Layer
from ortoo.common.grpc.front.calls import FrontContext
from ortoo.common.grpc.front.serving import SMALL_BYTES
from ortoo.common.grpc.limits.connections import Peer, end_connections, peer_of
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare

CALL_BYTES = 16 << 10
"""What an open call costs by itself, about: its tasks, its stream, its metadata."""
REQUEST_COPIES = 6
"""How often what one request brings exists at most: as it came, read, as messages, as their batch, twice on its way."""
LARGEST_PERCENT = 60
"""What of the budget one request counts as at most: the largest must pass by itself, or its sender tries for ever."""
TRANSPORT_COPIES = 2
"""How often an answer exists while it is written: as bytes, and as gRPC's copy of them."""
HEADER_BYTES_MAX = 16 << 10
"""How long the headers of one call may be. gRPC's core refuses longer ones, but not before the peer has acknowledged
the limit; one that goes on so has no honest reason."""
HEADER_BYTES_USUAL, REQUEST_BYTES_USUAL = 2 << 10, 1 << 10
"""Headers and requests of at most this size are part of CALL_BYTES."""
HEADER_COPIES = 3
"""How often longer ones exist: as gRPC keeps them, as texts, and as what their reader makes of them."""
TELL_INTERVAL_S = 10.0
"""How often the log tells of connections that were ended."""
_share: ContextVar[MemoryShare | None] = ContextVar("call_memory", default=None)
_log = get_logger("memory")


def current_share() -> MemoryShare | None:
    """The share of the call that is being served; None outside of any."""
    return _share.get()


def call_share(budget: MemoryBudget, kind: str) -> MemoryShare:
    """The share of the call that is being served; outside of any a new one of `kind`, which its user closes."""
    return current_share() or budget.share(kind)


class CallMemory(Layer):
    """Gives each call a share from its headers on, which is closed when gRPC has let go of all that was answered."""

    def __init__(self, budget: MemoryBudget) -> None:
        """Draw from `budget`."""
        self._budget = budget
        self._ending: dict[Peer | None, tuple[str, list[asyncio.Task[Any] | None]]] = {}
        """The calls whose connections are to end now, and why."""
        self.ended = {"unread": 0, "headers": 0}
        """How many connections were ended: their peers did not read, or sent headers that are too long."""
        self._told_at_s = float("-inf")

    def arrive(self, arrival: Arrival) -> None:
        """Open the call's share. If memory is short, calls whose requests do not come are ended. Errors: Overloaded."""
        share = arrival.memory = self._budget.share(arrival.kind)
        header_bytes = 0
        for _, value in arrival.metadata:
            header_bytes += len(value)
        call_bytes = CALL_BYTES
        if header_bytes > HEADER_BYTES_USUAL:
            if header_bytes > HEADER_BYTES_MAX:
                arrival.ends_connection = True
                raise Invalid(
                    f"the headers have {header_bytes} bytes; send at most {HEADER_BYTES_MAX}", field="headers"
                )
            call_bytes += HEADER_COPIES * header_bytes
        if arrival.is_observer:  # a process must be able to say that it is well
            share.take(call_bytes)
        else:
            share.draw(call_bytes, is_request=not arrival.gives_many)
        share.on_evict = arrival.end

    def enter(self, call: Call) -> None:
        """Count what the request brings. Errors: Overloaded; why the call was refused before its request came."""
        context = call.context
        arrival: Arrival | None = context.arrival if type(context) is FrontContext else ARRIVAL.get()
        if arrival is None:
            return
        if arrival.ends_connection:
            self._end("headers", context.peer(), asyncio.current_task())
        if arrival.refused is not None:
            arrival.raise_refusal()
        if arrival.end is not None:
            arrival.came()
        share = arrival.memory
        assert share is not None
        call.kept[self] = share
        if call.data is not None and len(call.data) > REQUEST_BYTES_USUAL:
            self.brought(call, len(call.data))
        task = asyncio.current_task()
        share.on_deaf = lambda: self._end("unread", context.peer(), task)
        _share.set(share)

    def brought(self, call: Call, request_bytes: int) -> None:
        """The call's request has so many bytes. Errors: Overloaded."""
        share: MemoryShare | None = call.kept.get(self)
        if share is None:
            return
        counted_bytes = min(REQUEST_COPIES * request_bytes, self._budget.bytes_max * LARGEST_PERCENT // 100)
        if call.method.path.startswith(OBSERVING):
            share.take(counted_bytes)
            share.settle()
            return
        try:
            share.fix(counted_bytes, is_request=not call.method.gives_many)
        except Overloaded:
            share.close()
            raise

    def answered(self, call: Call, answer: bytes) -> bytes:
        """Count an answer until gRPC has taken it; of a call with one until that has let go of it."""
        if len(answer) > SMALL_BYTES and self in call.kept:
            call.kept[self].take(TRANSPORT_COPIES * len(answer))
        return answer

    def taken(self, call: Call, answer: bytes) -> None:
        """One of several answers is gRPC's no longer."""
        if (share := call.kept.get(self)) is not None:
            share.give_back(TRANSPORT_COPIES * len(answer) if len(answer) > SMALL_BYTES else 0)
            share.moved()

    def _end(self, reason: str, peer: str, task: "asyncio.Task[Any] | None") -> None:
        """End the connection of a call, together with others that are to end now."""
        if not self._ending:
            asyncio.get_running_loop().call_soon(self._end_all)
        self._ending.setdefault(peer_of(peer), (reason, []))[1].append(task)

    def _end_all(self) -> None:
        ending, self._ending = self._ending, {}
        ended = end_connections(ending.keys())
        for peer, (reason, tasks) in ending.items():
            if peer in ended:
                self.ended[reason] += 1
                continue
            for task in tasks:  # it is no connection of sockets
                if task is not None:
                    task.cancel()
        self._tell()

    def _tell(self) -> None:
        """Log what was ended, not so often that peers who connect again fill the log."""
        if self._budget.now_s() - self._told_at_s >= TELL_INTERVAL_S:
            self._told_at_s = self._budget.now_s()
            _log.emit(log_events.CONNECTIONS_CLOSED, **self.ended)

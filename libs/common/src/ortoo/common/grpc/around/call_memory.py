"""What calls cost, drawn from the process's budget: each call, its headers and request, and answers not taken yet.

gRPC keeps an answer until the peer's window has room for it, and goes on keeping it when the handler has long ended,
for a status travels behind the answers. A peer that reads nothing is rid of by nothing but the end of its connection;
so that is what happens to it, when the memory is used up and the friendlier end of the call did not help.
"""

import asyncio
from contextvars import ContextVar
from typing import Any

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.around.arrival import ARRIVAL, Arrival
from ortoo.common.grpc.around.layers import Call, Layer
from ortoo.common.grpc.around.observers import OBSERVING
from ortoo.common.grpc.front.serving import SMALL_BYTES
from ortoo.common.grpc.limits.connections import Peer, end_connections, peer_of
from ortoo.common.process.logs import get_logger
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare

CALL_BYTES = 16 << 10
"""What an open call costs by itself, about: its tasks, its stream, its metadata."""
REQUEST_COPIES = 6
"""How often what one request brings exists at most: as it came, read, as messages, as their batch, twice on its way."""
LARGEST_PERCENT = 60
"""What of the budget one request counts as at most: the largest must pass by itself, or its sender tries for ever."""
TRANSPORT_COPIES = 2
"""How often an answer exists while it is written: as bytes, and as gRPC's copy of them."""
HEADER_BYTES_USUAL = 2 << 10
"""Headers of at most this size are part of CALL_BYTES."""
HEADER_COPIES = 3
"""How often longer ones exist: as gRPC keeps them, as texts, and as what their reader makes of them."""
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
        self._deaf: dict[Peer | None, list[asyncio.Task[Any] | None]] = {}
        """The calls whose connections are to end now."""

    def arrive(self, arrival: Arrival) -> None:
        """Open the call's share. If memory is short, calls whose requests do not come are ended. Errors: Overloaded."""
        share = self._budget.share(arrival.path.rpartition("/")[2])
        arrival.when_over(share.close)
        header_bytes = sum([len(value) for _, value in arrival.metadata])
        call_bytes = CALL_BYTES + HEADER_COPIES * max(0, header_bytes - HEADER_BYTES_USUAL)
        if arrival.path.startswith(OBSERVING):  # a process must be able to say that it is well
            share.take(call_bytes)
        else:
            share.draw(call_bytes, is_request=not arrival.gives_many)
        share.on_evict = arrival.end
        arrival.kept[self] = share

    def enter(self, call: Call) -> None:
        """Count what the request brings. Errors: Overloaded; why the call was refused before its request came."""
        arrival = ARRIVAL.get()
        if arrival is None:
            return
        if arrival.refused is not None:
            raise arrival.refused
        share: MemoryShare = arrival.kept[self]
        share.on_evict = arrival.end = None
        share.settle()
        call.kept[self] = share
        if call.data is not None:
            self.brought(call, len(call.data))
        context, task = call.context, asyncio.current_task()
        share.on_deaf = lambda: self._end(share.kind, context.peer(), task)
        _share.set(share)

    def brought(self, call: Call, request_bytes: int) -> None:
        """The call's request has so many bytes. Errors: Overloaded."""
        share: MemoryShare | None = call.kept.get(self)
        if share is not None:
            counted_bytes = min(REQUEST_COPIES * request_bytes, self._budget.bytes_max * LARGEST_PERCENT // 100)
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

    def _end(self, kind: str, peer: str, task: "asyncio.Task[Any] | None") -> None:
        """End the connection of a call, together with others that are to end now."""
        _log.warning("a connection is ended whose peer does not read", kind=kind, peer=peer)
        if not self._deaf:
            asyncio.get_running_loop().call_soon(self._end_all)
        self._deaf.setdefault(peer_of(peer), []).append(task)

    def _end_all(self) -> None:
        deaf, self._deaf = self._deaf, {}
        ended = end_connections(deaf.keys())
        for peer, tasks in deaf.items():
            for task in tasks if peer not in ended else ():  # it is no connection of sockets
                if task is not None:
                    task.cancel()

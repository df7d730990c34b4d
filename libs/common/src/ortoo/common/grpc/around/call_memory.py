"""What calls cost, drawn from the process's budget: each call, what it came with, and answers that nobody has taken.

gRPC keeps an answer until the peer's window has room for it, and goes on keeping it when the handler has long ended,
for a status travels behind the answers. A peer that reads nothing is rid of by nothing but the end of its connection;
so that is what happens to it, when the memory is used up and the friendlier end of the call did not help.
"""

import asyncio
from contextvars import ContextVar
from typing import Any

from ortoo.common.grpc.around.layers import Call, Layer
from ortoo.common.grpc.connections import Peer, end_connections, peer_of
from ortoo.common.grpc.front.calls import FrontContext
from ortoo.common.grpc.front.serving import SMALL_BYTES
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
UNCOUNTED = "/grpc."
"""Health and reflection: whoever is asked whether it is well must be able to answer."""
_share: ContextVar[MemoryShare | None] = ContextVar("call_memory", default=None)
_log = get_logger("memory")


def current_share() -> MemoryShare | None:
    """The share of the call that is being served; None outside of any."""
    return _share.get()


def call_share(budget: MemoryBudget, kind: str) -> MemoryShare:
    """The share of the call that is being served; outside of any a new one of `kind`, which its user closes."""
    return current_share() or budget.share(kind)


class CallMemory(Layer):
    """Gives each call a share, which is closed when gRPC has let go of all that was answered."""

    def __init__(self, budget: MemoryBudget) -> None:
        """Draw from `budget`."""
        self._budget = budget
        self._deaf: dict[Peer | None, list[asyncio.Task[Any] | None]] = {}
        """The calls whose connections are to end now."""

    def enter(self, call: Call) -> None:
        """Open the call's share. Errors: Overloaded."""
        method, context = call.method, call.context
        if method.path.startswith(UNCOUNTED):
            return
        kind = method.path.rpartition("/")[2]
        share = self._budget.share(kind)
        try:
            came_bytes = 0 if call.data is None else len(call.data)
            brought_bytes = min(REQUEST_COPIES * came_bytes, self._budget.bytes_max * LARGEST_PERCENT // 100)
            share.fix(CALL_BYTES + brought_bytes, is_request=not method.gives_many)
        except BaseException:
            share.close()
            raise
        task = asyncio.current_task()
        share.on_deaf = lambda: self._end(kind, context.peer(), task)
        # grpc.aio's task ends when the last of the answers and the status are on their way, or nobody is there.
        over = context if type(context) is FrontContext else task
        if over is not None:
            over.add_done_callback(lambda _: share.close())
        _share.set(share)
        call.kept[self] = share

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
        _log.emit(log_events.SLOW_READER_DISCONNECTED, kind=kind, peer=peer)
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

"""What calls cost, drawn from the process's budget: each call itself, and the answers that its peer has not taken.

gRPC keeps an answer until the peer's window has room for it, and goes on keeping it when the handler has long ended,
for a status travels behind the answers. A peer that reads nothing is rid of by nothing but the end of its connection;
so that is what happens to it, when the memory is used up and the friendlier end of the call did not help.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc

from ortoo.common.grpc.connections import Peer, end_connections, peer_of
from ortoo.common.grpc.errors import Context, with_call
from ortoo.common.grpc.front.calls import FrontContext
from ortoo.common.grpc.front.serving import SMALL_BYTES
from ortoo.common.process.logs import get_logger
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare

CALL_BYTES = 16 << 10
"""What an open call costs by itself, about: its tasks, its stream, its metadata."""
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


class CallMemory(grpc.aio.ServerInterceptor):
    """Gives each call a share, which is closed when gRPC has let go of all that was answered."""

    def __init__(self, budget: MemoryBudget) -> None:
        """Draw from `budget`."""
        self._budget = budget
        self._deaf: dict[Peer | None, list[asyncio.Task[Any] | None]] = {}
        """The calls whose connections are to end now."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of the called method, and write its answers here, where their size can be seen."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(UNCOUNTED):
            return handler
        kind, write = method.rpartition("/")[2], handler.response_serializer or bytes
        if not handler.response_streaming:
            return with_call(handler._replace(response_serializer=None), lambda call: self._unary(call, kind, write))
        if not any(inspect.isasyncgenfunction(call) for call in (handler.unary_stream, handler.stream_stream)):
            return handler
        return with_call(handler._replace(response_serializer=None), lambda call: self._stream(call, kind, write))

    def _unary(self, call: Any, kind: str, write: Callable[[Any], bytes]) -> Any:
        async def counted(request: Any, context: Context) -> bytes:
            share = self._opened(kind, context, is_request=True)
            data = write(await call(request, context))
            share.take(_held(data))
            return data

        return counted

    def _stream(self, call: Any, kind: str, write: Callable[[Any], bytes]) -> Any:
        async def counted(requests: Any, context: Context) -> Any:
            share = self._opened(kind, context, is_request=False)
            async for answer in call(requests, context):
                data = write(answer)
                held = _held(data)
                share.take(held)
                del answer
                yield data
                share.give_back(held)
                share.moved()

        return counted

    def _opened(self, kind: str, context: Context, *, is_request: bool) -> MemoryShare:
        """A share for a call. Errors: Overloaded."""
        share = self._budget.share(kind)
        try:
            share.fix(CALL_BYTES, is_request=is_request)
        except BaseException:
            share.close()
            raise
        peer, task = context.peer(), asyncio.current_task()
        share.on_deaf = lambda: self._end(kind, peer, task)
        # grpc.aio's task ends when the last of the answers and the status are on their way, or nobody is there.
        over = context if type(context) is FrontContext else task
        if over is not None:
            over.add_done_callback(lambda _: share.close())
        _share.set(share)
        return share

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


def _held(data: bytes) -> int:
    return TRANSPORT_COPIES * len(data) if len(data) > SMALL_BYTES else 0

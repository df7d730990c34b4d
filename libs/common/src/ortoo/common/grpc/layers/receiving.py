"""Receives the requests of a call: the one request before the layers are entered, or each request of a stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import grpc

from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.layers.arrival import ARRIVAL
from ortoo.common.grpc.limits.inflation import is_compressed

if TYPE_CHECKING:
    from ortoo.common.grpc.layers.layer import ServedCall


async def request_of(context: Context) -> bytes:
    """The one request of the current call, or the end of the call if its arrival is ended before that (AbortError).

    Only servers of grpc.aio need it, which usually receive the request before they call the handler. If such a call is
    cancelled meanwhile, no status is sent, and gRPC's core keeps the call with its headers until the connection is
    closed.
    """
    arrival, task, reasons = ARRIVAL.get(), asyncio.current_task(), list[str]()
    assert arrival is not None
    assert task is not None
    if arrival.refused is not None:
        return b""

    def end(reason: str) -> None:
        reasons.append(reason)
        task.cancel()

    arrival.peer, arrival.end = context.peer(), end
    data: Any = None
    try:
        data = await context.read()
    except asyncio.CancelledError:
        if not reasons:
            raise
        task.uncancel()
    finally:
        arrival.on_request_received()
    if reasons:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reasons[0])
    if data is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{arrival.kind} takes one request, and none came")
    received: bytes = data
    return received


class Requests:
    """The requests of a stream: each is decoded, and then passes the layers."""

    def __init__(self, call: "ServedCall", requests: AsyncIterator[Any], askeds: Sequence[Any], *, boxed: bool) -> None:
        """`askeds` are the layers' functions for each request. With `boxed` each request comes in a list."""
        self._call = call
        self._requests = requests
        self._coming: AsyncIterator[Any] | None = None
        """Made at the first read, because an iterator that is never read causes a warning."""
        self._askeds = askeds
        self._boxed = boxed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._coming is None:
            self._coming = aiter(self._requests)
        came = await anext(self._coming)
        data, method = came.pop() if self._boxed else came, self._call.method
        del came
        request = method.read(await method.inflate(data) if is_compressed(data) else data)
        for asked in self._askeds:
            if (waiting := asked(self._call, request)) is not None:
                await waiting
        return request

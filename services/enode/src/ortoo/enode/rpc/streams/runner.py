"""Running the long streams of this server: the tasks of a stream end with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol, TypeVar

import grpc

from ortoo.common.errors import OrtooError
from ortoo.common.process.background import Background
from ortoo.common.process.containment import Scope, as_ortoo_error
from ortoo.enode.rpc.streams.outbox import Outbox

Q = TypeVar("Q", contravariant=True)
R = TypeVar("R")


class StreamHandler(Protocol[Q, R]):
    """One open call: reads requests, starts work for each, and puts the answers into its outbox."""

    outbox: Outbox[R]
    """The answers."""
    waits_at_stop: bool
    """Whether open requests are answered before the server stops; otherwise they are abandoned."""

    async def serve(self, requests: AsyncIterator[Q], scope: Scope) -> None:
        """Read requests until the peer ends its side; the work runs in tasks of `scope`."""


class StreamRunner:
    """Runs streams until their peer or this server ends them."""

    def __init__(self, background: Background, draining: asyncio.Event) -> None:
        """`background` outlives all streams; when `draining` is set, streams end gracefully."""
        self._background = background
        self._draining = draining

    async def run(self, name: str, stream: StreamHandler[Any, R], requests: AsyncIterator[Any]) -> AsyncIterator[R]:
        """Yield the answers of `stream`. Its tasks have their own scope, as this generator may end at any yield."""
        scope = self._background.scope(name, failed=stream.outbox.fail)
        reading = scope.start("read", _read(stream, requests, scope))
        draining = scope.start("drain", self._drain(stream, reading))
        # If the owner of the streams cancels the drain task, end the stream: the peer must not wait on a dead one.
        draining.add_done_callback(lambda done: stream.outbox.end(abandon_open=True) if done.cancelled() else None)
        try:
            async for answer in stream.outbox:
                yield answer
                del answer
        finally:
            scope.cancel()

    async def _drain(self, stream: StreamHandler[Any, Any], reading: "asyncio.Task[Any]") -> None:
        """When draining begins, stop reading requests."""
        await self._draining.wait()
        if not reading.done():
            reading.cancel()
            stream.outbox.end(abandon_open=not stream.waits_at_stop)


async def result_or_error(what: str, work: Awaitable[R]) -> R | OrtooError:
    """The result of `work`, or its error; a defect becomes Internal."""
    try:
        return await work
    except Exception as error:
        return as_ortoo_error(error, f"the {what}")


async def _read(stream: StreamHandler[Any, Any], requests: AsyncIterator[Any], scope: Scope) -> None:
    try:
        await stream.serve(requests, scope)
    except (grpc.aio.AbortError, grpc.aio.UsageError, grpc.RpcError):
        stream.outbox.end(abandon_open=True)  # the peer disconnected; its call has a status already
    except Exception as error:
        stream.outbox.fail(error)
    else:
        stream.outbox.end()

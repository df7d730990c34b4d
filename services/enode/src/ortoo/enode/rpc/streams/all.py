"""The long streams of this server: each one's tasks live exactly as long as the stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol, TypeVar

import grpc

from ortoo.common.errors import Internal, OrtooError
from ortoo.common.process.background import Background
from ortoo.common.process.logs import get_logger
from ortoo.enode.rpc.streams.outbox import Outbox

Q = TypeVar("Q", contravariant=True)
R = TypeVar("R")
_log = get_logger("streams")


class Stream(Protocol[Q, R]):
    """One open call: reads requests, begins work for each, and puts the answers into its outbox."""

    @property
    def outbox(self) -> Outbox[R]:
        """The answers."""

    @property
    def waits_at_stop(self) -> bool:
        """Whether open requests are answered before the server stops, or abandoned."""

    async def serve(self, requests: AsyncIterator[Q], background: Background) -> None:
        """Read requests until there are no more; the work goes on in tasks of `background`."""


class Streams:
    """Runs streams until their peer or this server ends them."""

    def __init__(self, background: Background, draining: asyncio.Event) -> None:
        """`background` outlives all streams; when `draining` is set, streams end in good order."""
        self._background = background
        self._draining = draining

    async def run(self, name: str, stream: Stream[Any, R], requests: AsyncIterator[Any]) -> AsyncIterator[R]:
        """The answers of `stream`. The tasks belong to a task beside this generator, which may end anywhere."""
        pump = self._background.spawn(name, self._pump(name, stream, requests))
        try:
            async for answer in stream.outbox:
                yield answer
        finally:
            pump.cancel()

    async def _pump(self, name: str, stream: Stream[Any, Any], requests: AsyncIterator[Any]) -> None:
        async with Background(name) as own:
            reading = own.spawn("read", _read(stream, requests, own))
            draining = own.spawn("drain", self._draining.wait())
            await asyncio.wait({reading, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                stream.outbox.end(abandon_open=not stream.waits_at_stop)
            await asyncio.get_running_loop().create_future()  # until the answers are out, or the peer has gone


async def outcome(what: str, work: Awaitable[R]) -> R | OrtooError:
    """What `work` answers, or why it failed; a defect is logged, and the peer hears of it as Internal."""
    try:
        return await work
    except OrtooError as error:
        return error
    except Exception as error:
        _log.exception("a request failed", what=what)
        return Internal(f"the {what} met a defect ({type(error).__name__}); the enode's log has the details")


async def _read(stream: Stream[Any, Any], requests: AsyncIterator[Any], background: Background) -> None:
    try:
        await stream.serve(requests, background)
    except (grpc.aio.AbortError, grpc.aio.UsageError, grpc.RpcError):
        stream.outbox.end(abandon_open=True)  # the peer has gone; its call has a status already
    except Exception as error:
        stream.outbox.fail(error)
    else:
        stream.outbox.end()

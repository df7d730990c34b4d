"""A bidirectional stream with one snode: requests, responses, heartbeats and the end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import error_of_rpc
from ortoo.common.process.background import Background, pause
from ortoo.common.process.clock import Clock

Request = TypeVar("Request")
Response = TypeVar("Response")

HEARTBEAT_FIRST_S = 30.0


class Conversation(Generic[Request, Response]):
    """Requests are sent in the order of `say`; `run` ends when the server ends the stream or it breaks."""

    def __init__(
        self,
        peer: str,
        hear: Callable[[Response], bool],
        heartbeat: Callable[[], Request | None],
        *,
        clock: Clock,
        heartbeat_s: float = HEARTBEAT_FIRST_S,
    ) -> None:
        """`hear` gets each response of the snode at `peer` and returns whether it was the last.

        `heartbeat` is called every `heartbeat_s` and may return a request to send; an error from it ends the stream.
        """
        self.heartbeat_s = heartbeat_s
        self._sooner = asyncio.Event()
        self._peer = peer
        self._hear = hear
        self._heartbeat = heartbeat
        self._clock = clock
        self._outgoing: asyncio.Queue[Request] = asyncio.Queue()

    def say(self, request: Request) -> None:
        """Queue a request after all earlier ones."""
        self._outgoing.put_nowait(request)

    def beat_every(self, seconds: float) -> None:
        """Change the heartbeat interval to the one that the snode requires."""
        sooner, self.heartbeat_s = seconds < self.heartbeat_s, seconds
        if sooner:
            self._sooner.set()

    async def run(self, call: "grpc.aio.StreamStreamCall[Request, Response]") -> None:
        """Exchange messages until the last response. Errors: those of the server, or Unavailable on a broken stream."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def write() -> None:
            # After the end of the stream writes fail, but responses sent before it are still to be read.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    await call.write(await self._outgoing.get())

        async def read() -> None:
            try:
                async for response in call:
                    if self._hear(response) and not ended.done():
                        ended.set_result(None)
                _fail(ended, Unavailable(f"{self._peer} ended the stream without a closing message"))
            except grpc.aio.AioRpcError as failure:
                _fail(ended, error_of_rpc(failure, self._peer))

        async def beat() -> None:
            while True:
                await pause(self.heartbeat_s, self._sooner, self._clock)
                self._sooner.clear()
                try:
                    request = self._heartbeat()
                except OrtooError as error:
                    _fail(ended, error)
                    return
                if request is not None:
                    self.say(request)

        try:
            async with Background("conversation") as background:
                for part in (write, read, beat):
                    background.spawn(part.__name__, part())
                await ended
        finally:
            call.cancel()


def _fail(future: "asyncio.Future[None]", error: OrtooError) -> None:
    if not future.done():
        future.set_exception(error)

"""A stream in both directions with one snode: what both sides say, signs of life, and how it ends."""

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
    """Requests go out in the order in which they were said; `run` ends when the server ends the stream or it breaks."""

    def __init__(
        self,
        peer: str,
        hear: Callable[[Response], bool],
        heartbeat: Callable[[], Request | None],
        *,
        clock: Clock,
        heartbeat_s: float = HEARTBEAT_FIRST_S,
    ) -> None:
        """`hear` gets what the snode at `peer` says, and tells whether that was its last word.

        `heartbeat` is called every `heartbeat_s` and may return a sign of life; what it raises ends the conversation.
        """
        self.heartbeat_s = heartbeat_s
        self._sooner = asyncio.Event()
        self._peer = peer
        self._hear = hear
        self._heartbeat = heartbeat
        self._clock = clock
        self._outgoing: asyncio.Queue[Request] = asyncio.Queue()

    def say(self, request: Request) -> None:
        """Say something after everything said so far."""
        self._outgoing.put_nowait(request)

    def beat_every(self, seconds: float) -> None:
        """Give a sign of life so often from now on: the snode has said how long it hears nothing before it gives up."""
        sooner, self.heartbeat_s = seconds < self.heartbeat_s, seconds
        if sooner:
            self._sooner.set()

    async def run(self, call: "grpc.aio.StreamStreamCall[Request, Response]") -> None:
        """Converse until the server's last word. Errors: what it refused with; Unavailable when the stream broke."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def write() -> None:
            # Once the stream is over nothing can be written; what the server said before that is still to be read.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    await call.write(await self._outgoing.get())

        async def read() -> None:
            try:
                async for response in call:
                    if self._hear(response) and not ended.done():
                        ended.set_result(None)
                _fail(ended, Unavailable(f"{self._peer} ended the session without a word"))
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

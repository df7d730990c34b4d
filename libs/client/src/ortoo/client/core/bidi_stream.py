"""A bidirectional stream with one snode: requests, responses, heartbeats and the end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.server_status import ServerStatus
from ortoo.common.errors.status import error_of_rpc
from ortoo.common.process.background import Background, pause
from ortoo.common.process.clock import Clock

Request = TypeVar("Request")
Response = TypeVar("Response")

INITIAL_HEARTBEAT_INTERVAL_S = 30.0


class BidiStream(Generic[Request, Response]):
    """A bidirectional gRPC stream to one server; requests are sent in the order of the `send` calls."""

    def __init__(
        self,
        peer: str,
        on_response: Callable[[Response], bool],
        make_heartbeat: Callable[[], Request | None],
        *,
        clock: Clock,
        heartbeat_interval_s: float = INITIAL_HEARTBEAT_INTERVAL_S,
    ) -> None:
        """`on_response` gets each response of the snode at `peer`, and returns whether that response was the last.

        `make_heartbeat` is called every `heartbeat_interval_s` and may return a request to send; an error from it ends
        the stream.
        """
        self.heartbeat_interval_s = heartbeat_interval_s
        self._interval_shortened = asyncio.Event()
        self._peer = peer
        self._on_response = on_response
        self._make_heartbeat = make_heartbeat
        self._clock = clock
        self._outgoing: asyncio.Queue[Request] = asyncio.Queue()

    def send(self, request: Request) -> None:
        """Queue a request after all earlier ones."""
        self._outgoing.put_nowait(request)

    def set_heartbeat_interval(self, seconds: float) -> None:
        """Set the heartbeat interval that the snode requires."""
        is_shorter, self.heartbeat_interval_s = seconds < self.heartbeat_interval_s, seconds
        if is_shorter:
            self._interval_shortened.set()

    async def run(self, call: "grpc.aio.StreamStreamCall[Request, Response]") -> None:
        """Exchange messages until the last response. Errors: those of the server, or Unavailable on a broken stream."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        status = ServerStatus(call)

        async def write() -> None:
            # After the end of the stream writes fail, but responses sent before it are still to be read.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    await call.write(await self._outgoing.get())

        async def read() -> None:
            try:
                async for response in call:
                    if self._on_response(response) and not done.done():
                        done.set_result(None)
                _fail(done, Unavailable(f"{self._peer} ended the stream without a closing message"))
            except grpc.aio.AioRpcError as failure:
                _fail(done, error_of_rpc(status.of(failure), self._peer))

        async def beat() -> None:
            while True:
                await pause(self.heartbeat_interval_s, self._interval_shortened, self._clock)
                self._interval_shortened.clear()
                try:
                    request = self._make_heartbeat()
                except OrtooError as error:
                    _fail(done, error)
                    return
                if request is not None:
                    self.send(request)

        try:
            async with Background("conversation") as background:
                for part in (write, read, beat):
                    background.spawn(part.__name__, part())
                await done
        finally:
            call.cancel()


def _fail(future: "asyncio.Future[None]", error: OrtooError) -> None:
    if not future.done():
        future.set_exception(error)

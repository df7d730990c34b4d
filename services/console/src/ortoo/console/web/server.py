"""Uvicorn in the event loop of a role: the role owns signals and log lines."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ortoo.common.errors import Conflict
from ortoo.common.process.background import Background
from ortoo.console.settings import ConsoleSettings

CONCURRENCY_MAX = 500
"""Maximum number of connections and requests at once. Further requests are answered with 503."""
STOP_GRACE_S = 1
KEEP_ALIVE_S = 30
"""Time in which the head of the first or the next request of a connection arrives."""
BACKLOG = 128


class _Protocol(H11Protocol):
    """Closes connections that wait for a request too long. Uvicorn lets silent and very slow peers stay for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _wait_for_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._close_waiting, self.cycle)

    def _close_waiting(self, last: object) -> None:
        """Close the connection unless a request has begun after `last`."""
        if self.cycle is last:
            self.transport.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def open_server(app: ASGIApp, settings: ConsoleSettings, stopping: asyncio.Event) -> AsyncIterator[str]:
    """Serve `app` until the end of the block; yields the address with the real port.

    `stopping` is set when the server begins to stop, so that endless answers end. Errors: Conflict if the port is
    taken.
    """
    listener = _listener(settings.listen_address)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONCURRENCY_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_GRACE_S,
        ssl_certfile=settings.https_certificate_file or None,
        ssl_keyfile=settings.https_key_file or None,
    )
    server = _Server(config)
    host = settings.listen_address.rpartition(":")[0]
    async with Background("http") as background:
        serving = background.spawn("serve", server.serve(sockets=[listener]))
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            stopping.set()
            server.should_exit = True
            await serving


def _listener(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"{address} cannot be listened on: {error.strerror}; stop the process that uses it, or take another port",
            field="listen_address",
        ) from error
    return listener

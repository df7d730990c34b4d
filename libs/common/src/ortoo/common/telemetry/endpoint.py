"""A small HTTP server for Prometheus and probes, with /metrics, /healthz and /readyz. It is off without an address.

* GET /metrics: all metrics. `?zeros=no` leaves out labelled gauges that are 0.
* GET /healthz: 200 while the process is alive
* GET /readyz: 200 while requests are accepted, 503 while the process starts, drains or refuses requests
"""

import asyncio
import socket
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from ortoo.common.errors import Conflict
from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.text import CONTENT_TYPE, chunks

REQUEST_TIMEOUT_S: Final = 5.0
REQUEST_BYTES_MAX: Final = 16 << 10
CONNECTIONS_MAX: Final = 32
"""Maximum number of connections. For a further connection, the oldest is closed: idle connections must not delay health
checks."""
ACCEPTED_AT_ONCE: Final = 16
GZIP_BYTES_MIN: Final = 16 << 10
Answer = tuple[int, str, Sequence[bytes], bool]
"""Status, content type, parts of the body, and whether the body is compressed."""
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class MetricsEndpoint:
    """Serves the metrics over HTTP in the block, one scrape at a time; each connection carries one request."""

    def __init__(
        self,
        address: str,
        metrics: Metrics,
        *,
        ready: Callable[[], bool],
        clock: Clock,
        on_scrape: Callable[[float], None],
        listener: socket.socket | None = None,
    ) -> None:
        """Serve on host:port; nowhere when `address` is empty. `on_scrape` gets each scrape's duration in seconds.

        A `listener` that is already bound replaces the address.
        """
        self.address = address
        self._listener = listener
        self._metrics = metrics
        self._ready = ready
        self._clock = clock
        self._on_scrape = on_scrape
        self._server: asyncio.Server | None = None
        self._open: OrderedDict[asyncio.StreamWriter, None] = OrderedDict()
        """The connections, the oldest first."""
        self._scraping = asyncio.Lock()

    async def __aenter__(self) -> Self:
        if self._listener is not None:
            self._server = await asyncio.start_server(
                self._serve, sock=self._listener, limit=REQUEST_BYTES_MAX, backlog=ACCEPTED_AT_ONCE
            )
            return self
        if not self.address:
            return self
        host, _, port = self.address.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._serve, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX, backlog=ACCEPTED_AT_ONCE
            )
        except OSError as error:
            raise Conflict(
                f"cannot serve metrics on {self.address}: {error.strerror}; choose another metrics_address, or leave "
                "it empty to serve none",
                field="metrics_address",
            ) from error
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            oldest, _ = self._open.popitem(last=False)
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, kind, body, zipped = await self._answer(head)
            extra = "Content-Encoding: gzip\r\n" if zipped else ""
            length = sum(map(len, body))
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                writer.write(
                    f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
                    f"{extra}Connection: close\r\n\r\n".encode()
                )
                for part in body:
                    writer.write(part)
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, head: str) -> Answer:
        words = head.split("\r\n", 1)[0].split(" ")
        if len(words) != 3:
            return _text(400, "this is no HTTP request")
        if words[0] != "GET":
            return _text(405, "only GET")
        target = urlsplit(words[1])
        if target.path == "/metrics":
            zeros = parse_qs(target.query).get("zeros", ["yes"])[-1] not in ("no", "false", "0")
            zipped = "gzip" in next(
                (line for line in head.lower().split("\r\n") if line.startswith("accept-encoding:")), ""
            )
            return await self._scrape(zeros=zeros, zipped=zipped)
        if target.path == "/healthz":
            return _text(200, "alive") if await self._is_alive() else _text(503, "not alive")
        if target.path == "/readyz":
            return _text(200, "ready") if await self._is_ready() else _text(503, "not ready")
        return _text(404, "try /metrics, /healthz or /readyz")

    async def _is_alive(self) -> bool:
        return True

    async def _is_ready(self) -> bool:
        return self._ready()

    async def _parts(self, *, zeros: bool) -> AsyncIterator[str]:
        for part in chunks(self._metrics, zeros=zeros):
            yield part

    async def _scrape(self, *, zeros: bool, zipped: bool) -> Answer:
        async with self._scraping:
            begun_s = self._clock.monotonic_s()
            parts = []
            async for part in self._parts(zeros=zeros):
                parts.append(part.encode())
                await self._clock.sleep(0)  # messages go first
            zipped = zipped and sum(map(len, parts)) > GZIP_BYTES_MIN
            if zipped:
                parts = await asyncio.to_thread(_zipped, parts)
            self._on_scrape(self._clock.monotonic_s() - begun_s)
            return 200, CONTENT_TYPE, parts, zipped


def _text(status: int, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", [f"{text}\n".encode()], False


def _zipped(parts: Sequence[bytes]) -> list[bytes]:
    compressor = zlib.compressobj(1, wbits=zlib.MAX_WBITS | 16)  # with the header of gzip
    return [*map(compressor.compress, parts), compressor.flush()]

"""A channel whose streams in both directions use libnghttp2; its other calls use grpc.aio."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from ortoo.common.grpc.bulk_field import in_pieces
from ortoo.common.grpc.h2.client.call import UNAVAILABLE, H2StreamCall
from ortoo.common.grpc.h2.client.connection import H2ClientConnection
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.shared.tls_session import TlsSession
from ortoo.common.process.containment import as_ortoo_error


class H2Channel:
    """A channel to one address. It connects at its first call, and again after its connection broke.

    After a failed attempt, the calls that wait for it fail. For the following back-off further calls fail at once, and
    the first call after that connects again.
    """

    def __init__(
        self,
        address: str,
        options: Iterable[tuple[str, Any]],
        other: grpc.aio.Channel,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """A channel to host:port; `options` are gRPC's channel arguments, and `other` makes all other calls.

        The argument `grpc.ssl_target_name_override` is the name in the server's certificate; without it this is the
        host. `tls` is a context of clients for HTTP/2; None = the channel uses no TLS.
        """
        given = dict(options)
        self._address = address
        self._server_name: str = given.get("grpc.ssl_target_name_override", "")
        self._tls = tls
        self._limits = WireLimits.of_options(given.items())
        self._backoffs = Backoffs(given)
        self._other = other
        self._connection: H2ClientConnection | None = None
        self._leaving: set[H2ClientConnection] = set()
        """Connections that take no further calls, and have open calls."""
        self._waiting: list[H2StreamCall] = []
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] = bytes,
        response_deserializer: Callable[[bytes], Any] = bytes,
        _registered_method: bool | None = None,
    ) -> Callable[..., H2StreamCall]:
        """A method with many requests and many responses; `_registered_method` is what generated stubs give."""

        def call(*, metadata: Iterable[tuple[str, Any]] | None = None) -> H2StreamCall:
            made = H2StreamCall(method, tuple(metadata or ()), in_pieces(request_serializer), response_deserializer)
            self._dispatch(made)
            return made

        return call

    async def close(self, grace: float | None = None) -> None:
        """Cancel all calls, and close all connections."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._fail_waiting("the channel was closed")
        for connection in (*self._leaving, *([self._connection] if self._connection is not None else ())):
            for call in list(connection.calls.values()):
                call.cancel()
            connection.flush()
            connection.abort()
        await self._other.close(grace)

    def _dispatch(self, call: H2StreamCall) -> None:
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        if self._connection is not None:
            self._connection.open(call)
            return
        loop = asyncio.get_running_loop()
        if self._connecting is None and loop.time() < self._backoffs.until_s:
            call.end(UNAVAILABLE, self._backoffs.reason)
            return
        self._waiting.append(call)
        if self._connecting is None:
            self._connecting = loop.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        host, _, port = self._address.rpartition(":")
        scheme = b"http" if self._tls is None else b"https"
        connection = H2ClientConnection(self._limits, self._server_name or self._address, self._on_gone, scheme)
        begun_s = loop.time()
        try:
            async with asyncio.timeout(self._backoffs.connect_max_s):
                await loop.create_connection(lambda: self._secured(connection), host.strip("[]"), int(port))
                try:
                    await connection.is_ready
                except BaseException:
                    connection.abort()
                    raise
        except Exception as error:
            reason = str(error) if isinstance(error, OSError) else str(as_ortoo_error(error, "h2 channel"))
            if isinstance(error, TimeoutError):
                reason = "timed out before the server's settings came"
            self._backoffs.on_failed(begun_s, f"failed to connect to {self._address}: {reason}")
            self._fail_waiting(self._backoffs.reason)
        else:
            self._backoffs.on_connected()
            if not connection.is_lost:
                self._connection = connection
                waiting, self._waiting = self._waiting, []
                for call in waiting:
                    if not call.done():
                        connection.open(call)
            else:
                self._fail_waiting(f"{self._address} closed the connection")
        finally:
            self._connecting = None

    def _secured(self, connection: H2ClientConnection) -> asyncio.BaseProtocol:
        """The protocol of a socket for this connection."""
        if self._tls is None:
            return connection
        name = self._server_name or self._address.rpartition(":")[0].strip("[]")
        return TlsSession(connection, self._tls, handshake_max_s=self._backoffs.connect_max_s, server_name=name)

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.end(UNAVAILABLE, reason)

    def _on_gone(self, connection: H2ClientConnection) -> None:
        """The connection takes no further calls."""
        if self._connection is connection:
            self._connection = None
        if connection.is_lost:
            self._leaving.discard(connection)
        else:
            self._leaving.add(connection)


class Backoffs:
    """The time until the next attempt to connect."""

    MULTIPLIER = 1.6

    def __init__(self, options: dict[str, Any]) -> None:
        """Read the channel arguments of gRPC; missing ones have gRPC's defaults."""
        self.connect_max_s = options.get("grpc.min_reconnect_backoff_ms", 20_000) / 1000
        """The timeout of an attempt."""
        self._first_s = options.get("grpc.initial_reconnect_backoff_ms", 1_000) / 1000
        self._max_s = options.get("grpc.max_reconnect_backoff_ms", 120_000) / 1000
        self._failures = 0
        self.until_s = 0.0
        """Before this time, calls fail at once."""
        self.reason = ""
        """Why the last attempt failed."""

    def on_failed(self, begun_s: float, reason: str) -> None:
        """An attempt that began at this time has failed."""
        self.until_s = begun_s + min(self._first_s * self.MULTIPLIER ** min(self._failures, 50), self._max_s)
        self._failures += 1
        self.reason = reason

    def on_connected(self) -> None:
        """An attempt was successful."""
        self._failures, self.until_s = 0, 0.0

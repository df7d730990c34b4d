"""A connection that this process has opened to a server."""

import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.client.call import UNAVAILABLE, H2StreamCall
from ortoo.common.grpc.h2.framing import CONTENT_TYPE, write_metadata
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.shared.endpoint import Endpoint
from ortoo.common.grpc.h2.shared.looks import Looks

AGENT = b"ortoo-h2"


class H2ClientConnection(Endpoint):
    """The client's end of a connection."""

    def __init__(
        self,
        limits: WireLimits,
        authority: str,
        on_gone: Callable[["H2ClientConnection"], None],
        scheme: bytes = b"http",
    ) -> None:
        """`on_gone` is called when no further call may begin on it, because it was lost or the server stops."""
        super().__init__(limits, limits.client_connection(), Looks())
        self.calls: dict[int, H2StreamCall] = {}
        self.is_ready = self.loop.create_future()
        """Done when the server has sent its settings; fails with OSError when the connection breaks before."""
        self._authority = authority.encode()
        self._scheme = scheme
        self._error: Exception | None = None
        """Why the connection was lost, if that is known."""
        self._on_gone = on_gone
        self._is_retired = False

    def connection_made(self, transport: Any) -> None:
        """The socket is connected, and a handshake of TLS has succeeded."""
        self._transport = transport
        self.begin({**self.limits.settings(), engine.Setting.ENABLE_PUSH: 0})

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._error = error
        super().connection_lost(error)

    def open(self, call: H2StreamCall) -> None:
        """Begin a call."""
        headers = (
            (b":method", b"POST"),
            (b":scheme", self._scheme),
            (b":path", call.path.encode()),
            (b":authority", self._authority),
            (b"te", b"trailers"),
            (b"content-type", CONTENT_TYPE),
            (b"user-agent", AGENT),
            *write_metadata(call.metadata),
        )
        try:
            stream_id = self.h2.send_request(headers)
        except engine.NGH2Error as error:
            call.end(UNAVAILABLE, f"the connection takes no further calls: {error}")
            return
        self.calls[stream_id] = call
        if len(self.calls) == 1:
            self._lifetime.on_calls(1, self.loop.time())
        call.begin(self, stream_id)
        self.flush_soon()

    def retire(self) -> None:
        """Begin no further calls on this connection, and close it after its last call."""
        if not self._is_retired:
            self._is_retired = True
            self._on_gone(self)
        self._close_if_over()

    # Internal steps.

    def _on_lost(self) -> None:
        if not self.is_ready.done():
            self.is_ready.set_exception(_reason_of(self._error))
            self.is_ready.exception()  # also if the attempt to connect is no longer awaited
        self._is_retired = True
        self._on_gone(self)

    def _close_if_over(self) -> None:
        if self._is_retired and not self.calls:
            self.loop.call_soon(self.abort)

    def _end_stream(self, stream_id: int) -> None:
        with contextlib.suppress(engine.NGH2Error):
            self.h2.end_stream(stream_id)

    def _handle(self, events: Any) -> None:
        for event in events:
            if self.is_lost:  # an earlier event has ended the connection and its calls
                return
            kind = type(event)
            if kind is engine.DataReceived:
                if (call := self.calls.get(event.stream_id)) is not None:
                    self._hold(event)
                    call.on_data(event.data)
                elif event.data:
                    self._drop(event)
            elif kind is engine.ResponseReceived or kind is engine.TrailersReceived:
                if (call := self.calls.get(event.stream_id)) is not None:
                    call.on_headers(event.headers)
                    if call.done():  # no request is taken any more
                        self._end_stream(event.stream_id)
            elif kind is engine.StreamClosed:
                self._on_stream_closed(event)
            else:
                self._handle_other(kind)

    def _on_stream_closed(self, event: Any) -> None:
        self._release(event.stream_id)
        call = self.calls.pop(event.stream_id, None)
        if call is None:
            return
        call.end(UNAVAILABLE, f"the peer ended the call without a status (HTTP/2 error {event.error_code})")
        if not self.calls:
            self._lifetime.on_calls(0, self.loop.time())
            self._close_if_over()

    def _handle_other(self, kind: Any) -> None:
        if kind is engine.SettingsReceived:
            self._lifetime.on_settings()
            if not self.is_ready.done():
                self.is_ready.set_result(None)
        elif kind is engine.SettingsAcknowledged:
            self._lifetime.on_settings_acknowledged()
        elif kind is engine.GoAwayReceived:
            self.retire()
        elif kind is engine.ConnectionClosed:
            self.loop.call_soon(self.abort)


def _reason_of(error: Exception | None) -> OSError:
    """The reason why a connection was lost before the server's settings came, with gRPC's words for it."""
    if isinstance(error, ssl.SSLError) and "ALERT" not in (error.reason or ""):
        return ConnectionError(f"handshake failed: {error}")
    seen = f" ({error})" if error is not None else ""
    return ConnectionError(f"the server closed the connection before its settings came{seen}: Socket closed")

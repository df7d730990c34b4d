"""One client's connection: bytes of its socket become calls, and answers of one loop iteration become one write."""

import asyncio
import contextlib
from collections import Counter
from typing import Any, Final, Protocol

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.h2.framing import RESPONSE, Headers, trailers
from ortoo.common.grpc.h2.headers import CallHeaders
from ortoo.common.grpc.h2.lifetime import Lifetime, Step
from ortoo.common.grpc.h2.limits import CONNECTION_WINDOW_BYTES, WireLimits
from ortoo.common.grpc.h2.peers import auth_context_of, peer_name, spread_of
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import record_contained

RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
NO_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 8, 11
"""Error codes of HTTP/2."""
WRITE_BYTES: Final = 256 << 10
"""Maximum number of bytes that are given to the socket at once."""
LINGER_S: Final = 0.5
"""Time in which a peer may close a connection that the server has ended."""
RETIRING: Final = b"retiring"
"""The ping between the two steps of a graceful end. Its answer shows that the peer begins no further calls."""


class Owner(Protocol):
    """The server, as its connections see it."""

    clock: Clock
    limits: WireLimits
    ended: Counter[str]
    """The number of connections that were broken because of their peers' behaviour, by reason."""

    def find_method(self, path: str) -> Any:
        """The method of a path; None if there is none."""

    def add_connection(self, connection: "H2Connection") -> bool:
        """Whether the server takes the connection."""

    def remove_connection(self, connection: "H2Connection") -> None:
        """The connection has ended."""

    def on_call_ended(self) -> None:
        """A call of a connection has ended."""


class H2Connection(asyncio.Protocol):
    """The server's end of a connection."""

    def __init__(self, server: Owner) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = server
        self.calls: dict[int, H2Call] = {}
        self.is_lost = False
        self.h2 = server.limits.connection()
        self.peer = ""
        """The address of the peer as gRPC writes it."""
        self.auth_context: dict[str, list[bytes]] = {}
        """The TLS properties of the peer, with gRPC's names."""
        self._transport: Any = None
        self._lifetime: Lifetime
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = self._is_receiving = self._is_paused = self._is_closing = self._is_retired = False
        self._headers: Headers = ()
        self._call_headers: CallHeaders | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By stream: handlers that wait until their answers are sent."""
        self._ending: set[int] = set()
        """Streams whose status is queued although their peer has not half-closed them."""

    # Called by the event loop.

    def connection_made(self, transport: Any) -> None:
        """The socket is connected."""
        self._transport = transport
        name = transport.get_extra_info("peername")
        self.peer = peer_name(name)
        self.auth_context = auth_context_of(transport.get_extra_info("ssl_object"))
        limits = self.server.limits
        self._lifetime = Lifetime(limits, self.loop.time(), spread_of(name))
        if not self.server.add_connection(self):
            self.is_lost = True
            transport.abort()
            return
        self.h2.initiate_connection(limits.settings())
        self.h2.set_local_window_size(CONNECTION_WINDOW_BYTES)
        for wait_s in {limits.set_up_max_s, limits.settings_max_s}:
            self.loop.call_later(wait_s, self._check_set_up)
        self._timer = self.loop.call_later(self._lifetime.interval_s, self._look)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer have arrived."""
        if self.is_lost or self._is_closing:
            return
        self._lifetime.heard_s = self.loop.time()
        self._is_receiving = True
        try:
            self.h2.receive_data(data)
            self._handle(self.h2.events())
        except engine.DenialOfServiceError:
            self.abort("headers")
        except engine.NGH2Error:
            self.abort()
        except Exception as error:
            record_contained("h2 connection", error)
            self.abort()
        finally:
            self._is_receiving = False
        self.flush()

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The socket's buffer has space again."""
        self._is_paused = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._lose()

    # Called by calls and by the server.

    def flush_soon(self) -> None:
        """Write what is queued, at the end of this loop iteration."""
        if not self._is_due and not self._is_receiving:
            self._is_due = True
            self.loop.call_soon(self._flush_due)

    def flush(self) -> None:
        """Write what is queued, as far as windows and the socket take it."""
        try:
            self._write_queued()
            if self._ending and not self._is_paused:  # the status before a reset is written
                self._reset_ended()
                self._write_queued()
            if not self._is_receiving and (events := self.h2.events()):
                self._handle(events)
        except engine.NGH2Error:
            self.abort()
        if self._waiting:
            self._wake()

    async def wait_until_sent(self, stream_id: int) -> None:
        """Wait until all answers of a stream are given to the socket, or the stream has ended."""
        self.flush()
        while stream_id in self.calls and self.h2.queued_body_size(stream_id):
            waiting = self._waiting[stream_id] = self.loop.create_future()
            await waiting

    # libnghttp2 refuses frames of a stream whose reset it has read, although the event of the reset is still to come.

    def send_headers(self, stream_id: int, headers: Headers, *, is_last: bool = False) -> None:
        """Queue the initial headers of an answer, or with `is_last` an answer of headers only."""
        try:
            self.h2.send_response(stream_id, headers, end_stream=is_last)
        except engine.NGH2Error:
            return
        self.flush_soon()

    def send_data(self, stream_id: int, *parts: bytes) -> None:
        """Queue bytes of an answer."""
        try:
            for part in parts:
                self.h2.send_data(stream_id, part)
        except engine.NGH2Error:
            return
        self.flush_soon()

    def send_trailers(self, stream_id: int, headers: Headers) -> None:
        """Queue the end of an answer."""
        try:
            self.h2.send_trailers(stream_id, headers)
        except engine.NGH2Error:
            return
        self.flush_soon()

    def unsent_bytes(self, stream_id: int) -> int:
        """Size of the queued bytes of an answer."""
        return int(self.h2.queued_body_size(stream_id)) if stream_id in self.calls else 0

    def reset_when_sent(self, stream_id: int) -> None:
        """End a stream whose peer still sends, when its queued status is sent."""
        self._ending.add(stream_id)

    def reset(self, stream_id: int) -> None:
        """Cancel a stream, and drop its unsent answers."""
        with contextlib.suppress(engine.NGH2Error):
            self.h2.reset_stream(stream_id, CANCEL)
        self.flush_soon()

    def consumed(self, stream_id: int, size: int) -> None:
        """Open the peer's window by data that were read."""
        if size and not self.is_lost and stream_id in self.calls:
            try:
                self.h2.acknowledge_received_data(size, stream_id)
            except engine.NGH2Error:
                return
            self.flush_soon()

    def retire(self) -> None:
        """Ask the peer to make its further calls on another connection; close this one after its last call."""
        if not self._is_retired and not self.is_lost:
            self._is_retired = True
            self.h2.send_shutdown_notice()
            self.h2.ping(RETIRING)
            self.flush()

    def close(self) -> None:
        """Close the connection after what is queued was written.

        The peer's last bytes are still read for a moment. Otherwise its system would drop what it has not read yet.
        """
        if self.is_lost or self._is_closing:
            return
        self.flush()
        self._is_closing = True
        if not self._transport.can_write_eof():  # TLS tells the end itself
            self._transport.close()
            return
        try:
            self._transport.write_eof()
            self.loop.call_later(LINGER_S, self.abort)
        except OSError:  # the peer has ended the connection
            self.abort()

    def abort(self, reason: str = "") -> None:
        """Break the connection; a reason is counted."""
        if not self.is_lost:
            if reason:
                self.server.ended[reason] += 1
            self._transport.abort()
            self._lose()

    # Internal steps.

    def _write_queued(self) -> None:
        while not (self._is_paused or self.is_lost) and (data := self.h2.data_to_send(WRITE_BYTES)):
            self._transport.write(data)

    def _lose(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._end_calls()
        self.server.remove_connection(self)

    def _end_calls(self) -> None:
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.on_closed(is_reset=True)
        self._wake()

    def _check_set_up(self) -> None:
        if not self.is_lost and self._lifetime.is_set_up_late(self.loop.time()):
            self.abort()

    def _look(self) -> None:
        """Do what is due by the clock."""
        step = self._lifetime.next_step(self.loop.time())
        if step is Step.BREAK:
            self.abort()
        elif step is Step.RETIRE:
            self.retire()
        elif step is Step.PING:
            self.h2.ping()
            self.flush()
        if not self.is_lost:
            self._timer = self.loop.call_later(self._lifetime.interval_s, self._look)

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()

    def _reset_ended(self) -> None:
        """Reset the streams whose status was sent although their peer still sends, as gRPC does."""
        ended = [one for one in self._ending if one not in self.calls or not self.h2.queued_body_size(one)]
        for stream_id in ended:
            self._ending.discard(stream_id)
            if stream_id in self.calls:
                self.h2.reset_stream(stream_id, NO_ERROR)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_result(None)

    def _handle(self, events: Any) -> None:
        calls = self.calls
        for event in events:
            kind = type(event)
            if kind is engine.DataReceived:
                self._lifetime.on_request()
                if (call := calls.get(event.stream_id)) is not None:
                    call.on_data(event.data, is_last=event.end_stream)
                elif event.data:
                    self._drop(event)
            elif kind is engine.RequestReceived:
                self._begin(event.stream_id, event.headers, is_last=event.end_stream)
            elif kind is engine.StreamClosed:
                if (call := calls.pop(event.stream_id, None)) is not None:
                    self._end(call, event.error_code)
            elif kind is engine.StreamReset:
                if (call := calls.get(event.stream_id)) is not None:
                    call.on_reset()
            else:
                self._handle_other(kind, event)

    def _handle_other(self, kind: Any, event: Any) -> None:
        if kind is engine.SettingsReceived:
            self._lifetime.on_settings()
        elif kind is engine.SettingsAcknowledged:
            self._lifetime.on_settings_acknowledged()
        elif kind is engine.PingReceived:
            if self._lifetime.on_ping(self.loop.time()):
                self.h2.send_goaway(ENHANCE_YOUR_CALM, debug_data=b"too_many_pings")
                self._close_soon("pings")
        elif kind is engine.PingAcknowledged:
            if event.opaque_data == RETIRING and self._is_retired:
                self.h2.send_goaway(NO_ERROR)
                self._close_if_over()
        elif kind is engine.ConnectionClosed:
            self._end_calls()  # libnghttp2 takes nothing more for them
            self._is_retired = True
            self._close_soon("resets" if event.error_code == engine.RATE_EXCEEDED else "")

    def _close_soon(self, reason: str = "") -> None:
        """Close the connection when the peer has been told why."""
        if reason:
            self.server.ended[reason] += 1
        self.loop.call_soon(self.close)

    def _close_if_over(self) -> None:
        if self._is_retired and not self.calls:
            self.loop.call_soon(self.close)

    def _drop(self, event: Any) -> None:
        """Open the connection's window by data of a call that has ended."""
        # For a stream that is closed libnghttp2 has counted its data back.
        with contextlib.suppress(engine.NGH2Error, ValueError):
            self.h2.acknowledge_received_data(len(event.data), event.stream_id)

    def _end(self, call: H2Call, error_code: int) -> None:
        is_empty = bool(error_code) and not call.is_served
        call.on_closed(is_reset=bool(error_code))
        now_s = self.loop.time()
        if not self.calls:
            self._lifetime.on_calls(0, now_s)
            self._close_if_over()
        self.server.on_call_ended()
        if is_empty and self._lifetime.on_empty_reset(now_s):
            self.abort("resets")

    def _begin(self, stream_id: int, headers: Headers, *, is_last: bool) -> None:
        if self._call_headers is None or headers != self._headers:
            self._headers, self._call_headers = headers, CallHeaders(headers)
        found = self._call_headers
        if found.size_bytes > self.server.limits.header_bytes_max and self._lifetime.are_settings_known:
            limit = self.server.limits.header_bytes_max
            details = f"received metadata size exceeds hard limit ({found.size_bytes} vs. {limit})"
            self._refuse(stream_id, RESPONSE + trailers(RESOURCE_EXHAUSTED, details, ()))
            return
        method = self.server.find_method(found.path) if found.is_grpc and not found.error else None
        if method is None:
            self._refuse(stream_id, _refusal(found))
            return
        if not self.calls:
            self._lifetime.on_calls(1, self._lifetime.heard_s)
        call = self.calls[stream_id] = H2Call(self, stream_id, method, found)
        method.begin(call)
        if is_last:
            call.on_data(b"", is_last=True)

    def _refuse(self, stream_id: int, headers: Headers) -> None:
        self.send_headers(stream_id, headers, is_last=True)
        self._ending.add(stream_id)


def _refusal(headers: CallHeaders) -> Headers:
    if not headers.is_grpc:
        return ((b":status", b"415"),)
    code = INTERNAL if headers.error else UNIMPLEMENTED
    return RESPONSE + trailers(code, headers.error or "Method not found!", ())

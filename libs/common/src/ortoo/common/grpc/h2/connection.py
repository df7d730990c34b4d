"""One client's connection: requests of its streams become calls."""

from typing import Any, Final

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.h2.framing import OK_TRAILERS, PREFIX_BYTES, RESPONSE, Headers, frame, trailers, whole_message
from ortoo.common.grpc.h2.headers import CallHeaders, RepeatedRequest
from ortoo.common.grpc.h2.peers import auth_context_of, peer_name, spread_of
from ortoo.common.grpc.h2.polls import H2Poll
from ortoo.common.grpc.h2.ports import Port
from ortoo.common.grpc.h2.shared.endpoint import ENHANCE_YOUR_CALM, NO_ERROR, PROTOCOL_ERROR, Endpoint
from ortoo.common.grpc.h2.shared.owner import Owner
from ortoo.common.grpc.h2.shared.tls_session import LINGER_S
from ortoo.common.grpc.h2.shared.turns import CALLS_OF_TURN, FRAMES_OF_CALL, Turn
from ortoo.common.grpc.layers.polls import Polls
from ortoo.common.grpc.layers.repeats import ITEM_BYTES_MAX

RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
RETIRING: Final = b"retiring"
"""The ping between the two steps of a graceful end. Its answer shows that the peer begins no further calls."""
REPEATED_BYTES_MAX: Final = PREFIX_BYTES + ITEM_BYTES_MAX
"""Maximum size of an answer to a request that repeats."""


class H2Connection(Endpoint):
    """The server's end of a connection."""

    __slots__ = (
        "_call_headers",
        "_ending",
        "_is_broken",
        "_is_retired",
        "_is_waiting",
        "_opening",
        "_turn",
        "auth_context",
        "peer",
        "port",
        "server",
    )

    def __init__(self, server: Owner, port: Port) -> None:
        super().__init__(server.limits, server.limits.connection(), server.looks)
        self.server = server
        self.port = port
        self.calls: dict[int, H2Call | H2Poll] = {}
        self.peer = ""
        """The address of the peer as gRPC writes it."""
        self.auth_context: dict[str, list[bytes]] = {}
        """The TLS properties of the peer, with gRPC's names."""
        self._is_retired = self._is_broken = False
        self._turn = Turn()
        self._is_waiting = False
        """Whether nothing is read until the connection's next turn."""
        self._call_headers: CallHeaders | None = None
        """The headers of the last call."""
        self._opening: dict[int, Headers] = {}
        """By stream: headers of calls that are made when the first data of the stream are found in the same read."""
        self._ending: set[int] = set()
        """Streams whose status is queued although their peer has not half-closed them."""

    # Called by the event loop.

    def admit(self, transport: Any) -> bool:
        """Whether the connection is taken; otherwise it is closed."""
        self._transport = transport
        if not self.server.add_connection(self):
            self.is_lost = True
            transport.abort()
        return not self.is_lost

    def connection_made(self, transport: Any) -> None:
        """The socket is connected, and a handshake of TLS has succeeded."""
        if self._transport is None and not self.admit(transport):
            return
        name = transport.get_extra_info("peername")
        self.peer = peer_name(name)
        self.auth_context = auth_context_of(transport.get_extra_info("ssl_object"))
        self.begin(self.limits.settings(), spread_of(name))

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes of the peer."""
        return self._received[: self._turn.read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes of the peer have arrived."""
        super().buffer_updated(nbytes)
        turn = self._turn
        if nbytes < turn.read_bytes and turn.calls < CALLS_OF_TURN:  # as usual
            turn.calls = 0
        elif turn.on_read(nbytes) and not (self.is_lost or self._is_waiting):
            self._is_waiting = True
            self._transport.pause_reading()
            self.server.turns.wait(self)

    # Called by calls and by the server.

    def resume_reading(self) -> None:
        """Read again, because it is the connection's turn. No effect on a connection that has ended."""
        self._is_waiting = False
        if not self.is_lost:
            self._transport.resume_reading()

    def send_headers(self, stream_id: int, headers: Headers, *, is_last: bool = False) -> None:
        """Queue the initial headers of an answer, or with `is_last` an answer of headers only."""
        try:
            self.h2.send_response(stream_id, headers, end_stream=is_last)
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

    def send_answer(self, stream_id: int, message: bytes) -> None:
        """Queue a whole successful answer: a message, or several ones, with prefixes."""
        self._lifetime.on_data()
        h2 = self.h2
        try:
            h2.send_response(stream_id, RESPONSE)
            h2.send_data(stream_id, message)
            h2.send_trailers(stream_id, OK_TRAILERS)
        except engine.NGH2Error:
            return
        if not self._is_receiving:
            self.flush_soon()

    def reset_when_sent(self, stream_id: int) -> None:
        """End a stream whose peer still sends, when its queued status is sent."""
        self._ending.add(stream_id)

    def retire(self) -> None:
        """Ask the peer to make its further calls on another connection; close this one after its last call."""
        if not self._is_begun:
            self.abort()
        elif not self._is_retired and not self.is_lost:
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
        try:
            self._transport.write_eof()
            self.loop.call_later(LINGER_S, self.abort)
        except OSError:  # the peer has ended the connection
            self.abort()

    # Internal steps.

    def _after_write(self) -> None:
        if not self._is_paused:  # the status before a reset is written
            self._reset_ended()
            self._write_queued()

    def _count_broken(self, reason: str) -> None:
        self.server.on_broken(reason, self.peer)

    def _on_lost(self) -> None:
        self.server.remove_connection(self)

    def _reset_ended(self) -> None:
        """Reset the streams whose status was sent although their peer still sends, as gRPC does."""
        for stream_id in [one for one in self._ending if not self.h2.queued_body_size(one)]:
            self._ending.discard(stream_id)
            self._reset(stream_id, NO_ERROR)

    def _is_frame_whole(self, stream_id: int) -> bool:
        call = self.calls.get(stream_id)  # the data of a request that is taken as a whole are not counted
        return (call is not None and call.is_half_closed) or super()._is_frame_whole(stream_id)

    def _handle(self, events: Any) -> None:
        self._turn.calls += len(events) // FRAMES_OF_CALL
        for event in events:
            if self.is_lost:  # an earlier event has ended the connection and its calls
                return
            if self._opening and self._open(event):
                continue
            calls, kind = self.calls, type(event)
            if kind is engine.DataReceived:
                self._lifetime.on_data()
                if (call := calls.get(event.stream_id)) is not None:
                    self._hold(event)
                    call.on_data(event.data, is_last=event.end_stream)
                elif event.data:
                    self._drop(event)
            elif kind is engine.RequestReceived:
                self._receive(event)
            elif kind is engine.StreamClosed:
                self._end(event.stream_id, event.error_code)
            elif kind is engine.StreamReset:
                if (call := calls.get(event.stream_id)) is not None:
                    call.on_reset()
            else:
                self._handle_other(kind, event)
        if self._opening:
            self._begin_opening()

    def _receive(self, event: Any) -> None:
        self._turn.calls += 1
        if event.end_stream:
            self._begin(event.stream_id, event.headers, is_last=True)
        else:
            self._opening[event.stream_id] = event.headers

    def _open(self, event: Any) -> bool:
        """Handle an event after headers whose calls are not made yet; whether nothing else is to be done for it.

        Clients send the requests of several threads interleaved, and some open a window before the data. Before any
        other event, the calls are made.
        """
        kind = type(event)
        if kind is engine.RequestReceived:
            return False
        if kind is engine.WindowUpdated:
            return True
        if kind is not engine.DataReceived:
            self._begin_opening()
            return False
        headers = self._opening.pop(event.stream_id, None)
        return headers is not None and self._take(headers, event)

    def _begin_opening(self) -> None:
        opening, self._opening = self._opening, {}
        for stream_id, headers in opening.items():
            if not self.is_lost:
                self._begin(stream_id, headers, is_last=False)

    def _take(self, headers: Headers, event: Any) -> bool:
        """Handle headers with the first data of their stream; whether nothing else is to be done for the data."""
        stream_id = event.stream_id
        message = whole_message(event.data) if event.end_stream else None
        if message is not None:
            repeated = self.server.repeated.find(stream_id, headers, self)
            if repeated is not None and self._repeat(repeated, headers, message, event):
                return True
        if self.is_lost:
            return True
        call = self._begin(stream_id, headers, is_last=False, is_whole=message is not None)
        if message is None or call is None or not call.on_request(message):
            return False
        self._acknowledge(stream_id, len(event.data))
        self._lifetime.on_data()
        return True

    def _repeat(self, request: RepeatedRequest, headers: Headers, message: bytes, event: Any) -> bool:
        """Serve a request that repeats without making a call; False if it has to be served as usual.

        Only an answer that is certainly written at once needs no call, which would count its memory.
        """
        h2, stream_id = self.h2, request.stream_id
        if self._is_paused or h2.queued_body_size():
            return False
        try:
            room_bytes = min(h2.remote_window_size, h2.stream_remote_window_size(stream_id))
        except engine.NGH2Error:  # its reset has arrived, too
            return False
        if room_bytes < REPEATED_BYTES_MAX:
            return False
        method = request.method
        if isinstance(method, Polls):
            return self._wait(method, H2Poll(self, request, headers), event)
        key = method.key(request, message)
        if key is None or (answer := method.answer(key, request)) is None:
            return False
        self._acknowledge(stream_id, len(event.data))
        self.send_answer(stream_id, frame(answer))
        if not self.calls:
            self._lifetime.on_calls(0, self._lifetime.heard_s)
        return True

    def _wait(self, polls: Polls, poll: H2Poll, event: Any) -> bool:
        """Let a call wait for an event; False if it has to be made now."""
        if not poll.begin(event.data, polls):
            return False
        self._drop(event)
        self._lifetime.on_data()
        self._add(poll)
        return True

    def _add(self, call: H2Call | H2Poll) -> None:
        if not self.calls:
            self._lifetime.on_calls(1, self._lifetime.heard_s)
        self.calls[call.stream_id] = call

    def make(self, stream_id: int, headers: Headers, data: bytes, waited_s: float) -> H2Call | None:
        """Make the call of a poll, as if its request had just arrived; None if it is refused."""
        call = self._begin(stream_id, headers, is_last=False, is_whole=True, waited_s=waited_s)
        if call is not None and stream_id in self.calls and not call.on_request(data[PREFIX_BYTES:]):
            call.on_data(data, is_last=True)
        return call

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
        if reason and not self._is_broken:  # further events of the same read have the same reason
            self._is_broken = True
            self._count_broken(reason)
        self.loop.call_soon(self.close)

    def _close_if_over(self) -> None:
        if self._is_retired and not self.calls:
            self.loop.call_soon(self.close)

    def _end(self, stream_id: int, error_code: int) -> None:
        self._release(stream_id)
        if (call := self.calls.pop(stream_id, None)) is None:
            if error_code == PROTOCOL_ERROR:
                self.server.on_invalid_headers(self.peer)
            return
        is_empty = bool(error_code) and not call.is_served
        call.on_closed(is_reset=bool(error_code))
        if not self.calls:
            self._lifetime.on_calls(0, self.loop.time())
            self._close_if_over()
        self.server.on_call_ended()
        if is_empty and self._lifetime.on_empty_reset(self.loop.time()):
            self.abort("resets")

    def _begin(
        self, stream_id: int, headers: Headers, *, is_last: bool, is_whole: bool = False, waited_s: float = 0.0
    ) -> H2Call | None:
        """Begin a call; None if it is refused. `is_last` = no request follows, `is_whole` = the whole one is there."""
        last = self._call_headers
        found = self._call_headers = CallHeaders(headers) if last is None else last.next(headers)
        if found.size_bytes > self.server.limits.header_bytes_max and self._lifetime.are_settings_known:
            limit = self.server.limits.header_bytes_max
            details = f"received metadata size exceeds hard limit ({found.size_bytes} vs. {limit})"
            self._refuse(stream_id, RESPONSE + trailers(RESOURCE_EXHAUSTED, details, ()))
            return None
        method = self.server.find_method(found.path) if found.is_grpc and not found.error else None
        if method is None:
            self._refuse(stream_id, _refusal(found))
            return None
        call = H2Call(self, stream_id, method, found, waited_s)
        self._add(call)
        method.begin(call, is_whole=is_whole)
        if is_last:
            call.on_data(b"", is_last=True)
        return call

    def _refuse(self, stream_id: int, headers: Headers) -> None:
        self.send_headers(stream_id, headers, is_last=True)
        self._ending.add(stream_id)
        self._unopened[stream_id] = 0


def _refusal(headers: CallHeaders) -> Headers:
    if not headers.is_grpc:
        return ((b":status", b"415"),)
    code = INTERNAL if headers.error else UNIMPLEMENTED
    return RESPONSE + trailers(code, headers.error or "Method not found!", ())

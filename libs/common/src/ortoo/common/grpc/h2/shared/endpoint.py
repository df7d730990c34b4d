"""One end of a connection: bytes of its socket become events, and frames of one loop iteration become one write."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.limits import CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, WINDOW_BYTES_DEFAULT, WireLimits
from ortoo.common.grpc.h2.shared.lifetime import Lifetime, Step
from ortoo.common.grpc.h2.shared.looks import Looks
from ortoo.common.process.containment import record_contained

NO_ERROR, PROTOCOL_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 8, 11
"""Error codes of HTTP/2."""
READ_BYTES: Final = 256 << 10
"""Maximum number of bytes that are read from the socket at once."""
WRITE_BYTES: Final = 64 << 10
"""Maximum number of bytes that are given to the socket at once."""
FRAME_WAIT_MAX_S: Final = 5.0
"""The time after which a stream is reset although a part of its last frame is missing."""


class _Received(threading.local):
    """The buffer of the socket that a thread reads. All connections share it, because no bytes stay in it."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))


_RECEIVED: Final = _Received()


class Endpoint(asyncio.BufferedProtocol):
    """The part of a connection that servers and clients share."""

    __slots__ = (
        "__weakref__",
        "_held",
        "_is_begun",
        "_is_closing",
        "_is_due",
        "_is_paused",
        "_is_receiving",
        "_lifetime",
        "_look_number",
        "_looks",
        "_received",
        "_resets",
        "_taken",
        "_timers",
        "_transport",
        "_unopened",
        "_waiting",
        "calls",
        "h2",
        "is_lost",
        "limits",
        "loop",
    )

    _ending: Collection[int] = ()
    """Streams whose end has to follow the queued frames. Only servers have them."""

    def __init__(self, limits: WireLimits, h2: Any, looks: Looks) -> None:
        """`h2` is the state of a new connection, of a server or of a client, whose connections share `looks`."""
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.calls: dict[int, Any] = {}
        """The open calls by stream."""
        self.is_lost = False
        self.h2 = h2
        self._received = _RECEIVED.buffer
        self._transport: Any = None
        self._lifetime: Lifetime
        self._looks = looks
        self._look_number = 0
        self._timers: list[asyncio.TimerHandle] = []
        """The limits of its set-up."""
        self._is_begun = self._is_due = self._is_receiving = self._is_paused = self._is_closing = False
        self._held = defaultdict[int, int](int)
        """By stream: the number of received bytes by which the peer's windows were not opened again."""
        self._taken: dict[int, int] = {}
        """By stream: the part of them that was read, by which the windows are opened when frames are written."""
        self._unopened = defaultdict[int, int](int)
        """By stream: the number of its received bytes, in whole frames, less those by which its window was opened."""
        self._resets: dict[int, int] = {}
        """By stream that is reset when its frame is whole: the error code."""
        self._waiting: list[asyncio.Future[None]] = []
        """Senders that wait until their messages are sent. A stream may have several."""

    def begin(self, settings: dict[int, int], spread: float = 0.0) -> None:
        """Send the settings, and begin to watch the connection. `spread` is that of `Lifetime`."""
        self._is_begun = True
        self._lifetime = Lifetime(self.limits, self.loop.time(), spread)
        self.h2.initiate_connection(settings)
        self.h2.set_local_window_size(CONNECTION_WINDOW_BYTES)
        limits = {self.limits.set_up_max_s, self.limits.settings_max_s}
        self._await_look(self.loop.time())
        self._timers = [self.loop.call_later(wait_s, self._check_set_up) for wait_s in limits]
        self.flush()

    def admit(self, transport: Any) -> bool:
        """Whether the connection is taken. Its socket is connected, and a handshake of TLS is still to come."""
        self._transport = transport
        return True

    # Defined by servers and clients.

    def _handle(self, events: Any) -> None:
        """Handle events of the peer."""
        raise NotImplementedError

    def _on_lost(self) -> None:
        """The connection has ended, and all of its calls."""
        raise NotImplementedError

    def _count_broken(self, reason: str) -> None:
        """Count a connection that is broken for this reason."""

    # Called by the event loop.

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes of the peer."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes of the peer have arrived."""
        if self.is_lost or self._is_closing:
            return
        self._lifetime.heard_s = self.loop.time()
        self._is_receiving = True
        try:
            self.h2.receive_data(self._received[:nbytes])
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
        if self._is_begun:
            self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._lose()

    # Called by calls.

    def flush_soon(self) -> None:
        """Write what is queued, at the end of this loop iteration."""
        if not self._is_due and not self._is_receiving:
            self._is_due = True
            self.loop.call_soon(self._flush_due)

    def flush(self) -> None:
        """Write what is queued, as far as windows and the socket take it."""
        try:
            if self._taken:
                self._open_windows()
            if self._resets:
                self._reset_whole()
            self._write_queued()
            if self._ending:
                self._after_write()
            if not self._is_receiving and (events := self.h2.events()):
                self._handle(events)
        except engine.NGH2Error:
            self.abort()
        if self._waiting:
            self._wake()

    def _after_write(self) -> None:
        """End the streams of `_ending`, after the written frames."""

    async def wait_until_sent(self, stream_id: int, unsent_max: int = 0) -> None:
        """Wait until at most `unsent_max` bytes of a stream wait for the peer's window, or the stream ends."""
        self.flush()
        while self.unsent_bytes(stream_id) > unsent_max and stream_id not in self._resets:
            waiting: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(waiting)
            await waiting

    # libnghttp2 refuses frames of a stream whose reset it has read, although the event of the reset is still to come.

    def send_data(self, stream_id: int, *parts: bytes) -> None:
        """Queue bytes of a message."""
        self._lifetime.on_data()
        try:
            for part in parts:
                self.h2.send_data(stream_id, part)
        except engine.NGH2Error:
            return
        self.flush_soon()

    def unsent_bytes(self, stream_id: int) -> int:
        """Size of the queued bytes of a stream."""
        return int(self.h2.queued_body_size(stream_id)) if stream_id in self.calls else 0

    def reset(self, stream_id: int) -> None:
        """Cancel a stream, and drop its unsent messages."""
        self._reset(stream_id, CANCEL)
        self.flush_soon()

    def consumed(self, stream_id: int, size: int) -> None:
        """Open the peer's window by data that were read, at the end of this loop iteration."""
        if size and not self.is_lost:
            self._taken[stream_id] = self._taken.get(stream_id, 0) + size
            self.flush_soon()

    def abort(self, reason: str = "") -> None:
        """Break the connection; a reason is counted."""
        if not self.is_lost:
            if reason:
                self._count_broken(reason)
            self._transport.abort()
            self._lose()

    # Internal steps.

    def _hold(self, event: Any) -> None:
        """Count data that a call gets, until it has read them."""
        stream_id, size = event.stream_id, len(event.data)
        self._held[stream_id] += size
        self._unopened[stream_id] += size

    def _release(self, stream_id: int) -> None:
        """Open the connection's window by all data of a stream that has ended, whether or not its call reads them.

        libnghttp2 does not do that, so that each ended stream would make the window smaller for ever.
        """
        self._taken.pop(stream_id, None)
        self._unopened.pop(stream_id, None)
        self._resets.pop(stream_id, None)
        if size := self._held.pop(stream_id, 0):
            self._acknowledge(stream_id, size)

    def _open_windows(self) -> None:
        taken, self._taken = self._taken, {}
        for stream_id, size in taken.items():
            if stream_id in self._held and stream_id not in self._resets:
                with contextlib.suppress(engine.NGH2Error):  # it has ended, and is released with all its data
                    before = self.h2.stream_local_window_size(stream_id)
                    self._held[stream_id] -= size
                    self._acknowledge(stream_id, size)
                    self._unopened[stream_id] -= self.h2.stream_local_window_size(stream_id) - before

    def _reset(self, stream_id: int, error_code: int) -> None:
        """Reset a stream as soon as its last frame is whole.

        Otherwise libnghttp2 would keep the received part of this frame, which would make the connection's window
        smaller for ever. Meanwhile the peer's window stays closed. A peer that never sends the rest is not waited for.
        """
        if stream_id not in self._resets:
            self._resets[stream_id] = error_code
            if self._is_frame_whole(stream_id):
                self._reset_now(stream_id)
            else:
                self.loop.call_later(FRAME_WAIT_MAX_S, self._reset_late, stream_id)

    def _reset_whole(self) -> None:
        for stream_id in [one for one in self._resets if self._is_frame_whole(one)]:
            self._reset_now(stream_id)

    def _is_frame_whole(self, stream_id: int) -> bool:
        """Whether no part of a frame of a stream was received."""
        whole = STREAM_WINDOW_BYTES if self._lifetime.are_settings_known else WINDOW_BYTES_DEFAULT
        try:
            closed = whole - int(self.h2.stream_local_window_size(stream_id))
        except engine.NGH2Error:  # it has ended
            return True
        return closed <= self._unopened.get(stream_id, 0)

    def _reset_now(self, stream_id: int) -> None:
        """Reset a stream; no effect on one that has ended."""
        with contextlib.suppress(engine.NGH2Error):
            self.h2.reset_stream(stream_id, self._resets.pop(stream_id))

    def _reset_late(self, stream_id: int) -> None:
        if stream_id in self._resets and not self.is_lost:
            self._reset_now(stream_id)
            self.flush()

    def _acknowledge(self, stream_id: int, size: int) -> None:
        try:
            self.h2.acknowledge_received_data(size, stream_id)
        except (engine.NGH2Error, ValueError):
            return

    def _write_queued(self) -> None:
        size = WRITE_BYTES
        while size == WRITE_BYTES and not (self._is_paused or self._is_closing or self.is_lost):
            size = len(data := self.h2.data_to_send(WRITE_BYTES))  # less is all that is queued
            if size:
                self._transport.write(data)

    def _lose(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._looks.remove(self, self._look_number)
        for timer in self._timers:
            timer.cancel()
        self._end_calls()
        self._on_lost()

    def _end_calls(self) -> None:
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.on_closed(is_reset=True)
        self._wake()

    def _check_set_up(self) -> None:
        if not self.is_lost and self._lifetime.is_set_up_late(self.loop.time()):
            self.abort()

    def look(self) -> None:
        """Do what is due by the clock."""
        if self.is_lost:  # by an earlier look
            return
        now_s = self.loop.time()
        step = self._lifetime.next_step(now_s)
        if step is Step.BREAK:
            self.abort()
        elif step is Step.RETIRE:
            self.retire()
        elif step is Step.PING:
            self.h2.ping()
            self.flush()
        if not self.is_lost:
            self._await_look(now_s)

    def _await_look(self, now_s: float) -> None:
        self._look_number = self._looks.add(self, self._lifetime.next_look_s(now_s))

    def retire(self) -> None:
        """Begin no further calls on this connection, and close it after its last call."""
        raise NotImplementedError

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _drop(self, event: Any) -> None:
        """Open the connection's window by data of a stream without a call, if it was refused when it ends."""
        if event.stream_id in self._unopened:
            self._hold(event)
        else:
            self._acknowledge(event.stream_id, len(event.data))

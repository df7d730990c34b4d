"""TLS between the bytes of a socket and an end of a connection, without the TLS of the event loop.

The loop's own TLS tells a server of a connection only after its handshake, and drops the alert of a failed one.
"""

import asyncio
import contextlib
import ssl
from typing import Any, Final, Protocol

ALPN: Final = "h2"
"""The name of HTTP/2 in the handshake, which both sides require."""
LINGER_S: Final = 0.5
"""Time in which a peer may close a connection that this process has ended."""
UNSENT_BYTES_MAX: Final = 512 << 10
"""The largest number of bytes that may wait for a peer that sends. Frames stop far below it.

TLS itself answers each request for a new key, also if the peer reads nothing.
"""


class Secured(Protocol):
    """An end of a connection, as its TLS session sees it."""

    def admit(self, transport: Any) -> bool:
        """Whether the connection is taken. The socket is connected, and the handshake is still to come."""

    def connection_made(self, transport: Any) -> None:
        """The handshake has succeeded. The session is the transport."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next decrypted bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypted bytes are in the buffer."""

    def pause_writing(self) -> None:
        """The socket's buffer is full."""

    def resume_writing(self) -> None:
        """The socket's buffer has space again."""

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended. `error` is the failure of TLS, if there was one, such as the peer's alert."""


class TlsSession(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of its end of the connection.

    A server lets the peer read the alert of a failed handshake, before it closes the connection.
    """

    def __init__(
        self, end: Secured, context: ssl.SSLContext, *, handshake_max_s: float, server_name: str | None = None
    ) -> None:
        """`server_name` is the name that the peer's certificate must have; None = this is the server's session.

        Errors: ValueError if a certificate cannot have this name.
        """
        self._end = end
        self._is_server = server_name is None
        self._handshake_max_s = handshake_max_s
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._unsent, self._is_server, server_name)
        self._socket: Any = None
        self._buffer = memoryview(b"")
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = self._is_ended = False
        self._error: Exception | None = None

    # Called by the event loop.

    def connection_made(self, transport: Any) -> None:
        """The socket is connected."""
        self._socket = transport
        if not self._end.admit(self):
            self._is_ended = True
            return
        self._timer = asyncio.get_running_loop().call_later(self._handshake_max_s, self.abort)
        self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next encrypted bytes, which has the size of the end's buffer."""
        self._buffer = self._end.get_buffer(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Encrypted bytes have arrived."""
        if self._is_ended:
            return
        self._received.write(self._buffer[:nbytes])
        if self._is_open or self._shake_hands():
            self._read()

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._end.pause_writing()

    def resume_writing(self) -> None:
        """The socket's buffer has space again."""
        self._end.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._stop_timer()
        self._is_ended = True
        self._end.connection_lost(self._error or error)

    # The transport of the end of the connection.

    def write(self, data: bytes) -> None:
        """Encrypt and send bytes."""
        if self._is_ended:
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            self._error = error
            self.abort()
            return
        self._flush()

    def write_eof(self) -> None:
        """Send the end of the bytes. Further bytes of the peer are dropped. Errors: OSError if it has disconnected."""
        self._is_ended = True
        with contextlib.suppress(ssl.SSLError):  # the peer has not sent its end yet
            self._tls.unwrap()
        self._flush()
        self._socket.write_eof()

    def pause_reading(self) -> None:
        """Read nothing from the socket until `resume_reading`. Bytes that were read are still decrypted."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        self._socket.resume_reading()

    def abort(self) -> None:
        """Break the connection."""
        self._socket.abort()

    def get_extra_info(self, name: str) -> Any:
        """Information about the connection; `ssl_object` is this session's."""
        return self._tls if name == "ssl_object" else self._socket.get_extra_info(name)

    # Internal steps.

    def _shake_hands(self) -> bool:
        """Continue the handshake; whether it has succeeded."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._fail(error)
            return False
        if self._tls.selected_alpn_protocol() != ALPN:
            self._fail(ssl.SSLError("the peer does not offer HTTP/2, which has the name h2 in ALPN"))
            return False
        self._stop_timer()
        self._is_open = True
        self._flush()
        self._end.connection_made(self)
        return not self._is_ended

    def _fail(self, error: ssl.SSLError) -> None:
        self._error, self._is_ended = error, True
        self._flush()
        if not self._is_server:
            self._socket.close()
            return
        with contextlib.suppress(OSError):
            self._socket.write_eof()
        # If the socket was closed with unread bytes, the peer's system could drop the alert.
        asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _read(self) -> None:
        is_over = False
        while not (is_over or self._is_ended):
            buffer, size = self._end.get_buffer(-1), 0
            try:
                while size < len(buffer) and (count := int(self._tls.read(len(buffer) - size, buffer[size:]))):
                    size += count
                is_over = size < len(buffer)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                self._error, is_over = error, True
            finally:
                self._flush()
                if size:
                    self._end.buffer_updated(size)
        if is_over:
            self._socket.close()
        elif self._socket.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.abort()

    def _flush(self) -> None:
        if data := self._unsent.read():
            self._socket.write(data)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

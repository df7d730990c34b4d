"""A call that this process makes: a stream of requests and a stream of answers."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

import grpc

from ortoo.common.grpc.bulk_field import Pieces
from ortoo.common.grpc.h2.framing import (
    Headers,
    MessageReader,
    MessageTooLarge,
    Metadata,
    framed,
    read_metadata,
)
from ortoo.common.grpc.h2.shared.inbox import Inbox
from ortoo.common.process.containment import as_ortoo_error

if TYPE_CHECKING:
    from ortoo.common.grpc.h2.client.connection import H2ClientConnection

OK, CANCELLED, UNKNOWN, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE = 0, 1, 2, 8, 13, 14
UNSENT_BYTES_MAX: Final = 1 << 20
"""A write waits while more bytes of its stream wait for the peer's window or for the socket."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class H2StreamCall:
    """The part of grpc.aio's StreamStreamCall that Ortoo uses. Requests written in one loop iteration leave together.

    The call fails with UNAVAILABLE if the connection breaks. Answers that have arrived can be read before its status.
    """

    def __init__(
        self, path: str, metadata: Metadata, write: Callable[[Any], bytes | Pieces], read: Callable[[bytes], Any]
    ) -> None:
        """A call that has no connection yet; `write` and `read` convert its messages."""
        self.path = path
        self.metadata = metadata
        self._write = write
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        """Done when the call has a connection, or has ended without one."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._connection: H2ClientConnection | None = None
        self._stream_id = 0
        self._reader: MessageReader
        self._receiver: Callable[[Any], None] | None = None
        """Takes the answers instead of `read`."""
        self._inbox = Inbox(self._loop, self._consumed)
        self._code = OK
        self._details = ""
        self._trailing: Metadata = ()
        self._is_cancelled_here = False

    # Used by callers.

    async def wait_for_connection(self) -> None:
        """Wait until requests can be sent. Errors: AioRpcError."""
        await asyncio.shield(self._begun)
        if self._ended.done():
            self._raise_status()

    async def write(self, request: Any) -> None:
        """Send a request. Wait while many bytes are unsent. Errors: InvalidStateError if the call has ended."""
        if self._connection is None:
            await self.wait_for_connection()
        connection = self._connection
        if self._ended.done() or connection is None:
            raise asyncio.InvalidStateError("the call has ended")
        self._send(connection, self._write(request))
        if connection.unsent_bytes(self._stream_id) > UNSENT_BYTES_MAX:
            await connection.wait_until_sent(self._stream_id, UNSENT_BYTES_MAX // 2)

    def write_now(self, request: Any) -> bool:
        """Send a request if nothing has to be waited for; whether it was sent."""
        connection = self._connection
        if connection is None or self._ended.done() or connection.unsent_bytes(self._stream_id) > UNSENT_BYTES_MAX:
            return False
        self._send(connection, self._write(request))
        return True

    def _send(self, connection: "H2ClientConnection", data: bytes | Pieces) -> None:
        limit = connection.limits.sent_bytes_max
        if len(data) > limit:
            self._end_here(RESOURCE_EXHAUSTED, f"CLIENT: Sent message larger than max ({len(data)} vs. {limit})")
        else:
            connection.send_data(self._stream_id, *framed(data))

    async def read(self) -> Any:
        """The next answer; EOF after the last one. Errors: AioRpcError, CancelledError after `cancel`."""
        while not self._inbox:
            if self._ended.done():
                self._raise_status()
                return grpc.aio.EOF
            await self._inbox.wait()
        return self._read(self._inbox.pop())

    def deliver_to(self, receiver: Callable[[Any], None]) -> None:
        """Pass answers to `receiver` as soon as they arrive. `read` then returns only the end of the call."""
        self._receiver = receiver
        while self._inbox:
            receiver(self._read(self._inbox.pop()))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        answer = await self.read()
        if answer is grpc.aio.EOF:
            raise StopAsyncIteration
        return answer

    async def code(self) -> grpc.StatusCode:
        """The status code, when the call has ended."""
        await asyncio.shield(self._ended)
        return _CODES.get(self._code, grpc.StatusCode.UNKNOWN)

    async def details(self) -> str:
        """The details of the status, when the call has ended."""
        await asyncio.shield(self._ended)
        return self._details

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._ended.done()

    def cancel(self) -> bool:
        """End the call; whether it had not ended before."""
        if self._ended.done():
            return False
        self._is_cancelled_here = True
        self._end_here(CANCELLED, "Locally cancelled by application!")
        return True

    # Called by the channel and the connection.

    def begin(self, connection: "H2ClientConnection", stream_id: int) -> None:
        """The call is a stream of this connection."""
        self._connection, self._stream_id = connection, stream_id
        self._reader = MessageReader(connection.limits.message_bytes_max)
        if not self._begun.done():
            self._begun.set_result(None)

    def on_data(self, data: bytes) -> None:
        """Bytes of answers have arrived."""
        try:
            found = self._reader.feed(data) if data else []
        except MessageTooLarge as error:
            self._end_here(RESOURCE_EXHAUSTED, f"CLIENT: Received message larger than max ({error.args[0]})")
            return
        if self._receiver is None:
            self._inbox.add(found, len(data))
            return
        self._consumed(len(data))
        try:
            for message in found:
                self._receiver(self._read(message))
        except Exception as error:
            self._end_here(INTERNAL, f"an answer cannot be read: {as_ortoo_error(error, self.path)}")

    def on_headers(self, headers: Headers) -> None:
        """Headers have arrived: the initial ones, or those with the status."""
        found = dict(headers)
        if (code := found.get(b"grpc-status")) is not None:
            try:
                self._trailing = read_metadata(tuple(one for one in headers if not one[0].startswith(b"grpc-")))
                self.end(int(code), unquote(found.get(b"grpc-message", b"").decode("utf-8", "replace")))
            except ValueError:
                self._end_here(UNKNOWN, "the peer has sent an invalid status")
        elif found.get(b":status", b"200") != b"200":
            self._end_here(UNAVAILABLE, f"the peer answered with the HTTP status {found[b':status'].decode()}")

    def on_closed(self, *, is_reset: bool) -> None:
        """The connection is lost."""
        self.end(UNAVAILABLE, "the connection broke")

    def end(self, code: int, details: str) -> None:
        """The call has ended with this status, unless it has ended before."""
        if self._ended.done():
            return
        self._code, self._details = code, details
        self._ended.set_result(None)
        if not self._begun.done():
            self._begun.set_result(None)
        self._inbox.wake()

    def _end_here(self, code: int, details: str) -> None:
        if self._connection is not None and not self._connection.is_lost:
            self._connection.reset(self._stream_id)
        self._inbox.clear()
        self.end(code, details)

    def _consumed(self, size: int) -> None:
        if self._connection is not None:
            self._connection.consumed(self._stream_id, size)

    def _raise_status(self) -> None:
        if self._is_cancelled_here:
            raise asyncio.CancelledError
        if self._code != OK:
            code = _CODES.get(self._code, grpc.StatusCode.UNKNOWN)
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*self._trailing), self._details)

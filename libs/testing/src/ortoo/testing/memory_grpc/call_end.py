"""The part that both ends of a call share: received messages that are not read yet, and the write window."""

import asyncio
import types
from collections import deque
from collections.abc import Generator, Sequence
from typing import TypeVar

from ortoo.testing.memory_grpc.connection import CallStream
from ortoo.testing.memory_grpc.node import Endpoint
from ortoo.testing.memory_grpc.packet import FailedBatch, Packet

T = TypeVar("T")

RECEIVE_BYTES_MAX = 4 << 20
"""grpc's default for the largest message to receive."""


class ChannelLimits:
    """The options of a channel or a server that matter in memory."""

    def __init__(self, options: Sequence[tuple[str, object]], window_bytes: int) -> None:
        """If an option is given twice, the last value counts, as in grpc."""
        self._given = dict(options)
        self.window_bytes = window_bytes
        """The unread bytes in one direction of a call above which the writer waits."""
        self.send_bytes_max = self.number("grpc.max_send_message_length", -1)
        self.receive_bytes_max = self.number("grpc.max_receive_message_length", RECEIVE_BYTES_MAX)

    def number(self, name: str, default: int) -> int:
        """The value of an integer option."""
        value = self._given.get(name, default)
        assert isinstance(value, int), f"{name} must be a number and is {value!r}"
        return value

    @property
    def keepalive_s(self) -> float | None:
        """The silence after which an end closes a connection; None without keepalive."""
        interval_ms = self.number("grpc.keepalive_time_ms", 0)
        return (interval_ms + self.number("grpc.keepalive_timeout_ms", 20_000)) / 1000 if interval_ms else None


class CallSide:
    """Reads and writes one call. As in grpc's core one read and one write may wait at a time.

    A message is sent at once, but its write finishes only when the unread bytes fit the window.
    """

    def __init__(self, endpoint: Endpoint, limits: ChannelLimits, method: str, *, at_server: bool) -> None:
        """One end of a call of `method`, which has no stream yet."""
        self.endpoint = endpoint
        self.method = method
        self._limits = limits
        self._at_server = at_server
        self._stream: CallStream | None = None
        self._unread: deque[bytes] = deque()
        self._read_bytes = 0
        self._in_flight_bytes = 0
        self._reading: asyncio.Future[bytes | None] | None = None
        self._writing: asyncio.Future[bool] | None = None
        self._is_receiving_done = False
        """The other end sends no further messages."""
        self._is_closed = False
        """Nothing can be written or received."""

    async def receive(self) -> bytes | None:
        """The next message; None when there will be none.

        A second read beside a waiting one gets None at once. So does every read after one whose task was cancelled at
        the server. As in grpc's core, the cancelled read still gets the next message.
        """
        if self._reading is not None:
            return None
        if self._unread or self._is_receiving_done:
            message = self._take()
            await _next_turn()  # as in grpc's core, the reader continues in a later turn
            return message
        reading: asyncio.Future[bytes | None] = self.endpoint.loop.create_future()
        self._reading = reading
        return await reading

    def _take(self) -> bytes | None:
        if not self._unread:
            return None
        message = self._unread.popleft()
        if self._is_too_large("Received", len(message), self._limits.receive_bytes_max):
            return None
        self._count_read(len(message))
        if self._is_receiving_done and not self._unread:
            self._on_all_read()
        return message

    async def send(self, packet: Packet) -> None:
        """Send a message and its metadata. Errors: FailedBatch when the call cannot take it."""
        assert packet.message is not None
        size = len(packet.message)
        if self._is_closed or self._stream is None:
            raise FailedBatch("the call has ended")
        if self._writing is not None:
            raise FailedBatch("another write waits")
        if self._is_too_large("Sent", size, self._limits.send_bytes_max):
            raise FailedBatch("the message is too large")
        writing = self._writing = self.endpoint.loop.create_future()
        self._in_flight_bytes += size
        self._stream.send(packet, to_server=not self._at_server)
        try:
            if self._has_room:
                await _next_turn()  # as in grpc's core, the writer continues in a later turn
            elif not await writing:
                raise FailedBatch("the call ended before the message was taken")
        finally:
            self._writing = None

    def send_control(self, packet: Packet) -> None:
        """Send a packet without a message, while the call is open."""
        if self._stream is not None:
            self._stream.send(packet, to_server=not self._at_server)

    @property
    def _has_room(self) -> bool:
        return self._in_flight_bytes <= self._limits.window_bytes

    def _on_message(self, message: bytes) -> None:
        self._unread.append(message)
        self._resume_reader()

    def _resume_reader(self) -> None:
        """Give the next message to the waiting read, even if its task no longer waits."""
        if self._reading is not None:
            reading, self._reading = self._reading, None
            _resolve(reading, self._take())

    def _was_read(self, size_bytes: int) -> None:
        self._in_flight_bytes -= size_bytes
        if self._has_room and self._writing is not None:
            _resolve(self._writing, True)

    def _end_receiving(self) -> None:
        self._is_receiving_done = True
        self._resume_reader()

    def _close_both(self, *, lose_unread: bool) -> None:
        """End both directions and wake waiting reads and writes."""
        if lose_unread:
            self._unread.clear()
        self._is_closed = True
        if self._writing is not None:
            _resolve(self._writing, self._has_room)
        self._end_receiving()

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.leave(at_server=self._at_server)

    def _too_large(self, details: str, *, was_sent: bool) -> None:
        """End the call with RESOURCE_EXHAUSTED."""
        raise NotImplementedError

    def _on_all_read(self) -> None:
        """Called when all messages were read and no further ones will come."""

    def _is_too_large(self, verb: str, size: int, limit: int) -> bool:
        if not 0 <= limit < size:
            return False
        end = "SERVER" if self._at_server else "CLIENT"
        self._too_large(f"{end}: {verb} message larger than max ({size} vs. {limit})", was_sent=verb == "Sent")
        return True

    def _count_read(self, size_bytes: int) -> None:
        """Report read bytes to the writer, but not for every small message."""
        self._read_bytes += size_bytes
        if self._read_bytes * 2 >= self._limits.window_bytes and not self._is_closed:
            self.send_control(Packet(self.method, read_bytes=self._read_bytes))
            self._read_bytes = 0


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Let the loop run other callbacks first. Cheaper than a future that is resolved in the next turn."""
    yield


def as_bytes(message: object) -> bytes:
    """A serialised message; None becomes an empty one, as in grpc. Errors: TypeError."""
    if message is None:
        return b""
    if not isinstance(message, bytes):
        raise TypeError(f"a message must be bytes when it is sent, and this one is {type(message).__name__}")
    return message


def _resolve(waiting: "asyncio.Future[T]", result: T) -> None:
    if not waiting.done():
        waiting.set_result(result)

"""The client side of a call: replaces the core below grpc.aio's Python classes of calls."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import grpc
from grpc.aio._call import _GC_CANCELLATION_DETAILS

from ortoo.testing.memory_grpc.call_end import CallSide, ChannelLimits, as_bytes
from ortoo.testing.memory_grpc.connection import UNAVAILABLE, MemoryConnection
from ortoo.testing.memory_grpc.node import Endpoint
from ortoo.testing.memory_grpc.packet import CallStatus, FailedBatch, Metadata, Metadatum, Packet, Status, sent_metadata

CANCELLED: int = grpc.StatusCode.CANCELLED.value[0]
DEADLINE_EXCEEDED: int = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
INTERNAL: int = grpc.StatusCode.INTERNAL.value[0]
RESOURCE_EXHAUSTED: int = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]

USER_AGENT = ("user-agent", f"grpc-python-asyncio/{grpc.__version__} (in memory)")


class Dispatcher(Protocol):
    """Gives connections to calls."""

    def dispatch(self, call: "MemoryCall") -> None:
        """Call its `start` or `refuse`, now or later."""

    def withdraw(self, call: "MemoryCall") -> None:
        """The call no longer needs a connection."""


class MemoryCall(CallSide):
    """Has the methods and attributes that grpc.aio's classes of calls use, and their behaviour.

    * The status of a streaming call is unknown before all messages are read, unless the connection broke, the deadline
    passed or the caller cancelled. Then unread messages are lost.
    * A write that the call no longer takes makes its status INTERNAL, even if it has another one.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        endpoint: Endpoint,
        limits: ChannelLimits,
        method: str,
        deadline_s: float | None,
        wait_for_ready: bool,
    ) -> None:
        """A call that `endpoint` makes; the deadline is on the loop's clock."""
        super().__init__(endpoint, limits, method, at_server=False)
        self.waits_for_ready = wait_for_ready
        """Whether it waits for a connection without limit."""
        self._dispatcher = dispatcher
        self._channel = dispatcher  # grpc.aio 1.71 looks for the open calls of a channel by this name
        self._deadline_s = deadline_s
        self._status: Any = None  # this and the next name are grpc.aio's
        self._initial_metadata: Metadata | None = None
        self._is_locally_cancelled = False
        self._done_callbacks: list[Callable[[], object]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._first: Packet | None = None
        self._ended: Status | None = None
        """The final status, which streaming callers see when they have read everything."""
        self._shows_status = False
        self._is_complete = False
        self._timer = None if deadline_s is None else endpoint.at(deadline_s, self._expire)

    # Called by grpc.aio's classes.

    def done(self) -> bool:
        """Whether the status is known."""
        return self._status is not None

    def cancelled(self) -> bool:
        """Whether the status is CANCELLED."""
        return self._status is not None and self._status.code() == CANCELLED

    def is_locally_cancelled(self) -> bool:
        """Whether the caller cancelled it."""
        return self._is_locally_cancelled

    def is_ok(self) -> bool:
        """Whether the status is OK."""
        return self._status is not None and self._status.code() == 0

    def time_remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self.endpoint.loop.time())

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the status is known."""
        if self.done():
            callback()
        else:
            self._done_callbacks.append(callback)

    def cancel(self, details: str) -> None:
        """End it from this side. The garbage collector's cancellation is ignored: its moment differs between runs."""
        if details == _GC_CANCELLATION_DETAILS:
            return
        self._is_locally_cancelled = True
        self._set_status(CallStatus(CANCELLED, details, None, None))
        self._abandon(Status(CANCELLED, details))
        self._complete()

    def set_internal_error(self, error: str) -> None:
        """Set the status that grpc.aio gives a call that did not take a message."""
        self._set_status(CallStatus(INTERNAL, "Internal error from Core", (), error))

    async def status(self) -> Any:
        """The status when it is known."""
        await self._until(self.done)
        return self._status

    async def initial_metadata(self) -> Metadata:
        """The server's initial metadata, empty if the call ended without."""
        await self._until(lambda: self._initial_metadata is not None)
        return self._initial_metadata or ()

    async def unary_unary(self, request: bytes | None, metadata: Metadata, context: object = None) -> bytes | None:
        """Send the request and wait for the status; the answer if it is OK."""
        self._begin(metadata, message=as_bytes(request), is_last=True)
        return await self._answer()

    async def stream_unary(
        self, metadata: Metadata, metadata_sent: Callable[[], object], context: object = None
    ) -> bytes | None:
        """Begin, report when messages may be sent, and wait for the status; the answer if it is OK."""
        self._begin(metadata)
        try:
            await self._until_started()
            metadata_sent()
            await self._until_answered()
        except FailedBatch:
            self._show_status()
            metadata_sent()
            return None
        return await self._answer()

    async def initiate_unary_stream(self, request: bytes | None, metadata: Metadata, context: object = None) -> None:
        """Send the request and wait for the initial metadata."""
        self._shows_status = True
        self._begin(metadata, message=as_bytes(request), is_last=True)
        try:
            await self._until_started()
            await self._until_answered()
        except FailedBatch:
            await self._until(self.done)

    async def initiate_stream_stream(
        self, metadata: Metadata, metadata_sent: Callable[[], object], context: object = None
    ) -> None:
        """Begin, report when messages may be sent, and wait for the initial metadata."""
        self._shows_status = True
        self._begin(metadata)
        try:
            await self._until_started()
            metadata_sent()
            await self._until_answered()
        except FailedBatch:
            await self._until(self.done)
            metadata_sent()

    async def receive_serialized_message(self) -> Any:
        """The next message or EOF."""
        message = await self.receive()
        return grpc.aio.EOF if message is None else message

    async def send_serialized_message(self, message: bytes | None) -> None:
        """Send a message. Errors: FailedBatch when the call has ended, or one is being sent."""
        await self.send(Packet(self.method, message=as_bytes(message)))

    async def send_receive_close(self) -> None:
        """Close the sending side, if necessary as soon as there is a connection."""
        await self._until(lambda: self._stream is not None or self._ended is not None)
        self.send_control(Packet(self.method, is_last=True))

    # Called by the channel and the connection.

    def start(self, connection: MemoryConnection) -> None:
        """Start over a connection."""
        assert self._first is not None
        if self._deadline_s is not None:
            self._first.timeout_s = self.time_remaining()
        self._stream = connection.open(self)
        self._in_flight_bytes += len(self._first.message or b"")
        self.send_control(self._first)
        self._changed()

    def refuse(self, details: str) -> None:
        """No connection could be made."""
        if self.endpoint.is_alive:
            self._abandon(Status(UNAVAILABLE, details))

    def on_packet(self, packet: Packet) -> None:
        """Handle a packet of the server."""
        if self._ended is not None:
            return
        if packet.metadata is not None:
            self._set_initial_metadata(packet.metadata)
        if packet.message is not None:
            self._on_message(packet.message)
        if packet.read_bytes:
            self._was_read(packet.read_bytes)
        if packet.status is not None and self._ended is None:  # the message may have been too large
            self._end(packet.status, lose_unread=False)

    def connection_lost(self, details: str) -> None:
        """The connection broke; unread answers are lost."""
        if self._ended is None:
            self._end(Status(UNAVAILABLE, details), lose_unread=True)

    # Internal steps.

    def _begin(self, metadata: Iterable[Any], *, message: bytes | None = None, is_last: bool = False) -> None:
        sent = (Metadatum(*USER_AGENT), *sent_metadata(metadata))
        self._first = Packet(self.method, metadata=sent, message=message, is_last=is_last)
        if self._ended is None and not self._is_too_large("Sent", len(message or b""), self._limits.send_bytes_max):
            self._dispatcher.dispatch(self)

    async def _answer(self) -> bytes | None:
        message = await self.receive()
        await self._until(lambda: self._ended is not None and not self._unread)
        self._show_status()
        return message if self.is_ok() else None

    async def _until_started(self) -> None:
        """Wait for the connection. Errors: FailedBatch when there is none, or the call ended before."""
        await self._until(lambda: self._stream is not None or self._ended is not None)
        if self._stream is None:
            raise FailedBatch("the call did not start")

    async def _until_answered(self) -> None:
        """Wait for the initial metadata. Errors: FailedBatch when the call breaks before."""
        await self._until(lambda: self._initial_metadata is not None or self._ended is not None)
        if self._initial_metadata is None and self._is_closed:
            raise FailedBatch("the call ended before the first metadata")

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            waiting: asyncio.Future[None] = self.endpoint.loop.create_future()
            self._waiting.append(waiting)
            await waiting

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _set_status(self, status: Any) -> None:
        self._status = status
        self._set_initial_metadata(())
        for callback in self._done_callbacks:
            callback()
        self._changed()

    def _set_initial_metadata(self, metadata: Metadata) -> None:
        if self._initial_metadata is None:
            self._initial_metadata = metadata
            self._changed()

    def _end(self, status: Status, *, lose_unread: bool) -> None:
        self._ended = status
        self._leave()
        self._close_both(lose_unread=lose_unread)
        if not self._unread:
            self._on_all_read()
        self._changed()

    def _on_all_read(self) -> None:
        if self._shows_status:
            self._show_status()

    def _show_status(self) -> None:
        if self._ended is not None and not self._is_locally_cancelled:
            self._complete()
            self._set_status(self._ended.as_grpc())

    def _complete(self) -> None:
        self._is_complete = True
        if self._timer is not None:
            self._timer.cancel()

    def _abandon(self, status: Status) -> None:
        """End it from this side, even if the server's status is here and waits for unread messages."""
        if self._is_complete:
            return
        if self._stream is None:
            self._dispatcher.withdraw(self)
        elif self._ended is None:
            self.send_control(Packet(self.method, is_cancelled=True))
        self._end(status, lose_unread=True)

    def _expire(self) -> None:
        if self.endpoint.is_alive:
            self._abandon(Status(DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def _too_large(self, details: str, *, was_sent: bool) -> None:
        status = Status(RESOURCE_EXHAUSTED, details)
        if was_sent:  # delayed, so that the status follows the failure of the write itself
            self.endpoint.soon(self._abandon, status)
        else:
            self._abandon(status)

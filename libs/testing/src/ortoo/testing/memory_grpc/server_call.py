"""The server side of a call: finds the handler, runs it, and sends the status."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

import grpc

from ortoo.common.logs.logger import get_logger
from ortoo.testing import log_events
from ortoo.testing.memory_grpc.call_end import CallSide, ChannelLimits, as_bytes
from ortoo.testing.memory_grpc.client_call import DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED
from ortoo.testing.memory_grpc.connection import CallStream
from ortoo.testing.memory_grpc.node import Endpoint
from ortoo.testing.memory_grpc.packet import FailedBatch, Metadata, Packet, Status, sent_metadata
from ortoo.testing.memory_grpc.servicer_context import MemoryContext, Requests

OK = 0
UNKNOWN: int = grpc.StatusCode.UNKNOWN.value[0]
UNIMPLEMENTED: int = grpc.StatusCode.UNIMPLEMENTED.value[0]

_log = get_logger("memory grpc")

Handler = Any
"""grpc.RpcMethodHandler, for any message types."""


class CallDetails(grpc.HandlerCallDetails):
    """The details of a call that interceptors get."""

    def __init__(self, method: str, invocation_metadata: Metadata) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


class CallOwner(Protocol):
    """The interface of the server for its calls."""

    @property
    def interceptors(self) -> Sequence[grpc.aio.ServerInterceptor]:
        """The interceptors, outermost first."""

    def handler(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of the method."""

    def call_closed(self, call: "ServerCall") -> None:
        """Its status was sent, or its caller has disconnected; the handler may still run."""

    def call_is_over(self, call: "ServerCall") -> None:
        """It is closed, and its handler has ended."""


class ServerCall(CallSide):
    """Runs its handler in a task that is cancelled when the caller disconnects, as grpc.aio does.

    If a handler raises CancelledError itself, no status is sent, and its caller keeps waiting. A handler that is a
    plain function runs at once, without a thread. It can use the part of its context that needs no await.
    """

    def __init__(
        self,
        server: CallOwner,
        endpoint: Endpoint,
        limits: ChannelLimits,
        stream: CallStream,
        opening: Packet,
        *,
        is_one_too_many: bool,
    ) -> None:
        """A call that `opening` began; a call above the limit is refused."""
        super().__init__(endpoint, limits, opening.method, at_server=True)
        self._stream = stream
        self._server = server
        self._is_one_too_many = is_one_too_many
        self.metadata = opening.metadata or ()
        self.peer = stream.peer
        self.callbacks: list[Callable[[], object]] = []
        self.is_status_sent = False
        self.code = OK
        self.given_code: Any = None
        """The code as the handler gave it, which may be a number."""
        self.details = ""
        self.trailing_metadata: Metadata = ()
        self._deadline_s: float | None = None
        self._expiry: asyncio.Handle | None = None
        if opening.timeout_s is not None:
            self._deadline_s = endpoint.loop.time() + opening.timeout_s
            self._expiry = endpoint.at(self._deadline_s, self._expire)
        self._abort: BaseException | None = None
        self._is_initial_sent = False
        self._is_caller_gone = False
        self._task = endpoint.loop.create_task(
            self._run(), name=f"serve {self.method}", context=endpoint.context.copy()
        )
        self._task.add_done_callback(self._on_handler_done)

    # Called by the connection and the server.

    def on_packet(self, packet: Packet) -> None:
        """Handle a packet of the caller."""
        if packet.message is not None:
            self._on_message(packet.message)
        if packet.read_bytes:
            self._was_read(packet.read_bytes)
        if packet.is_last:
            self._end_receiving()
        if packet.is_cancelled:
            self._on_caller_gone()

    def connection_lost(self, details: str) -> None:
        """The caller cannot be reached."""
        self._on_caller_gone()

    def stop(self, status: Status) -> None:
        """End the call; its handler sees the same as when the caller disconnects."""
        self.send_control(Packet(self.method, metadata=self._initial(), status=status))
        self._on_caller_gone()

    # Called by the context.

    def time_remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self.endpoint.loop.time())

    def raise_if_over(self) -> None:
        """Errors: AbortError after an abort, UsageError after the status."""
        if self._abort is not None:
            raise self._abort
        if self.is_status_sent:
            raise grpc.aio.UsageError("RPC already finished.")

    async def send_message(self, data: bytes | None) -> None:
        """Send an answer, preceded by the initial metadata if it is the first. Errors: FailedBatch."""
        await self.send(Packet(self.method, metadata=self._initial(), message=as_bytes(data)))
        self._is_initial_sent = True

    async def send_initial_metadata(self, metadata: Iterable[Any]) -> None:
        """Send the metadata.

        Errors: UsageError when it was sent already, FailedBatch when the caller disconnected.
        """
        if self._is_initial_sent:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        if self._is_closed:
            raise FailedBatch("the call has ended")
        sent = sent_metadata(metadata)
        self._is_initial_sent = True
        self.send_control(Packet(self.method, metadata=sent))

    def set_trailing_metadata(self, metadata: Iterable[Any]) -> None:
        """Set the metadata. Errors: TypeError, FailedBatch here and not with the status."""
        self.trailing_metadata = sent_metadata(metadata)

    def set_code(self, code: Any) -> None:
        """A grpc.StatusCode or its number."""
        self.code = _number(code)
        self.given_code = code

    def abort(self, code: Any, details: str, trailing_metadata: Metadata) -> NoReturn:
        """Send the status. Errors: AbortError, UsageError the second time, FailedBatch after the call ended."""
        if self._abort is not None:
            raise grpc.aio.UsageError("Abort already called!")
        self._abort = grpc.aio.AbortError("Locally aborted.")
        if trailing_metadata or not self.trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        self.details = details or self.details
        self.set_code(code)
        was_sent, self.is_status_sent = self.is_status_sent, True
        assert self.code != OK, "Expecting non-ok status code."
        if was_sent or self._is_closed:
            raise FailedBatch("the call has ended")
        self._say_status(self._own_status())
        raise self._abort

    # Internal steps.

    async def _run(self) -> None:
        try:
            await self._answer()
        except grpc.aio.AbortError as error:
            if error is not self._abort:
                _log.emit(log_events.HANDLER_RAISED_ABORT_ERROR, method=self.method, exc_info=error)
        except asyncio.CancelledError:
            _log.emit(log_events.HANDLER_CANCELLED, method=self.method)
        except FailedBatch as error:
            if not self._is_caller_gone:
                _log.emit(log_events.HANDLER_RESPONSE_FAILED, method=self.method, exc_info=error)
        except Exception as error:
            _log.emit(log_events.HANDLER_FAILED, method=self.method, exc_info=error)
            if not self.is_status_sent and not self._is_closed:
                self._finish(Status(self.code or UNKNOWN, f"Unexpected {type(error)}: {error}", self.trailing_metadata))

    async def _answer(self) -> None:
        handler = await _intercepted(
            iter(self._server.interceptors), self._server.handler, CallDetails(self.method, self.metadata)
        )
        if handler is None:
            self._finish(Status(UNIMPLEMENTED, "Method not found!"))
            return
        if self._is_one_too_many:
            self._finish(Status(RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!"))
            return
        context = MemoryContext(self, handler)
        request: Any = Requests(context)
        if not handler.request_streaming:
            data = await self.receive()
            if data is None:
                return  # the caller has disconnected
            request = handler.request_deserializer(data) if handler.request_deserializer else data
        if handler.response_streaming:
            await self._answer_many(handler.stream_stream or handler.unary_stream, request, context)
        else:
            await self._answer_one(handler, request, context)

    async def _answer_one(self, handler: Handler, request: Any, context: MemoryContext) -> None:
        answer = (handler.stream_unary or handler.unary_unary)(request, context)
        if inspect.isawaitable(answer):
            answer = await answer
        self.raise_if_over()
        data = b""
        if self.code == OK:
            data = as_bytes(handler.response_serializer(answer) if handler.response_serializer else answer)
        self._finish(self._own_status(), message=data)

    async def _answer_many(self, call: Callable[..., Any], request: Any, context: MemoryContext) -> None:
        answers = call(request, context)
        if inspect.isawaitable(answers):
            await answers
        elif inspect.isasyncgen(answers):
            async for answer in answers:
                self.raise_if_over()
                await context.write(answer)
        else:
            for answer in answers:
                await context.write(answer)
        self.raise_if_over()
        self._finish(self._own_status())

    def _own_status(self) -> Status:
        return Status(self.code, self.details, self.trailing_metadata)

    def _initial(self) -> Metadata | None:
        return None if self._is_initial_sent else ()

    def _finish(self, status: Status, *, message: bytes | None = None) -> None:
        """Send the status, with the one answer of a call that has one."""
        self.is_status_sent = True
        if self._is_closed:
            raise FailedBatch("the call has ended")
        if message is not None and self._is_too_large("Sent", len(message), self._limits.send_bytes_max):
            raise FailedBatch("the message is too large")
        self._say_status(status, message)

    def _say_status(self, status: Status, message: bytes | None = None) -> None:
        self.send_control(Packet(self.method, metadata=self._initial(), message=message, status=status))
        self._close()

    def _close(self) -> None:
        """Receive and send nothing further."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._leave()
        self._close_both(lose_unread=True)
        self._server.call_closed(self)

    def _on_caller_gone(self) -> None:
        """The caller disconnected: readers see the end of the requests, and then the handler is cancelled."""
        self._is_caller_gone = True
        self._close()
        self.endpoint.soon(self._cancel)

    def _cancel(self) -> None:
        if not self.endpoint.is_alive:
            return
        if not self._task.done():
            if not self.is_status_sent:
                self._task.cancel()
        else:
            self._finish_if_done()

    def _expire(self) -> None:
        if self.endpoint.is_alive and not self._is_closed:
            self.stop(Status(DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def _too_large(self, details: str, *, was_sent: bool) -> None:
        self.stop(Status(RESOURCE_EXHAUSTED, details))

    def _on_handler_done(self, _: object) -> None:
        for callback in self.callbacks:
            try:
                callback()
            except Exception as error:
                _log.emit(log_events.CALL_CALLBACK_FAILED, method=self.method, exc_info=error)
        if self._is_closed:
            self._finish_if_done()

    def _finish_if_done(self) -> None:
        self._server.call_is_over(self)


async def _intercepted(
    interceptors: Iterator[grpc.aio.ServerInterceptor],
    find: Callable[[grpc.HandlerCallDetails], Handler | None],
    details: grpc.HandlerCallDetails,
) -> Handler | None:
    """The handler, as the interceptors return it."""
    interceptor = next(interceptors, None)
    if interceptor is None:
        return find(details)
    continuation: Callable[..., Awaitable[Any]] = partial(_intercepted, interceptors, find)
    return await interceptor.intercept_service(continuation, details)


def _number(code: Any) -> int:
    number: int = code.value[0] if isinstance(code, grpc.StatusCode) else int(code)
    return number

"""The grpc.aio context of a call of this transport, for its handler and the layers."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, Self

import grpc

from ortoo.common.grpc.h2.call import OK, H2Call
from ortoo.common.grpc.h2.framing import Metadata
from ortoo.common.grpc.layers.arrival import Arrival
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import as_ortoo_error


class H2Context(grpc.aio.ServicerContext[Any, Any]):
    """The handler's access to its call, which may be of any kind."""

    number = OK
    """The status that was set."""
    is_aborted = False
    """Whether the handler has ended the call by `abort`."""
    _code: Any = None
    _details = ""
    _trailing: Metadata = ()

    def __init__(
        self, call: H2Call, clock: Clock, read: Callable[[bytes], Any] | None, write: Callable[[Any], bytes] | None
    ) -> None:
        """`read` and `write` convert the messages of a handler that reads and writes by the context."""
        self._call = call
        self.arrival: Arrival | None = call.arrival
        """The state of the call since its headers came; None without layers."""
        self._clock = clock
        self._read = read
        self._write = write

    # The caller.

    def invocation_metadata(self) -> Any:
        """The caller's metadata."""
        return self._call.metadata

    @property
    def headers(self) -> dict[str, str]:
        """The text values of the caller's metadata. They are shared with other calls: do not change them."""
        return self._call.headers.text

    @property
    def waited_s(self) -> float:
        """The time for which the caller already waited before the call was made."""
        return self._call.waited_s

    def peer(self) -> str:
        """The address of the caller, also of a call without layers."""
        return self._call.peer()

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The TLS properties of the caller."""
        return self._call.auth_context()

    def peer_identity_key(self) -> str | None:
        """Not used, because callers are identified by signatures."""
        return None

    def peer_identities(self) -> Iterable[bytes] | None:
        """Not used, because callers are identified by signatures."""
        return None

    def time_remaining(self) -> float | None:  # type: ignore[override]  # None without a deadline, as in grpc.aio
        """Seconds until the call's deadline, at least 0; None if the call has no deadline."""
        if self._call.deadline_s is None:
            return None
        return max(0.0, self._call.deadline_s - self._clock.now_ms() / 1000)

    def cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return self._call.is_caller_gone

    # The status.

    def set_code(self, code: Any) -> None:
        """Set the status code with which the call will end."""
        self._code = code
        self.number = code.value[0] if isinstance(code, grpc.StatusCode) else int(code)

    def code(self) -> Any:
        """The code that was set, unchanged; None if no code was set."""
        return self._code

    def set_details(self, details: str) -> None:
        """Set the details of the status with which the call will end."""
        self._details = details

    def details(self) -> str:
        """The details that were set."""
        return self._details

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Set the metadata that is sent with the status."""
        self._trailing = tuple(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """The metadata that is sent with the status."""
        return self._trailing

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with this status. Errors: AbortError, or UsageError or InternalError if it has ended already."""
        if self.is_aborted:
            raise grpc.aio.UsageError("Abort already called!")
        if self._call.is_answered or self._call.is_closed:
            raise grpc.aio.InternalError("the call has ended")
        self.set_code(code)
        assert self.number != OK, "Expecting non-ok status code."
        self._details = details or self._details
        self._trailing = tuple(trailing_metadata) or self._trailing
        self.is_aborted = True
        # The error is not kept, because its traceback refers to the call.
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with this status. Errors: as `abort`."""
        await self.abort(status.code, status.details or "", status.trailing_metadata or ())

    # The messages.

    async def read(self) -> Any:
        """The next request, or EOF. EOF as well when the caller cancelled, just before the handler is cancelled."""
        self._raise_if_over()
        data = await self._call.receive()
        self._raise_if_over()
        if data is None:
            return grpc.aio.EOF
        return data if self._read is None else self._read(data)

    async def write(self, message: Any) -> None:
        """Send an answer, and wait while too many bytes are unsent. Errors: InternalError if the caller is gone."""
        self._raise_if_over()
        data = message if self._write is None else self._write(message)
        if not self.check_size(data):
            raise grpc.aio.InternalError("the message is too large")
        await self._call.send_and_wait(data)
        if self._call.is_caller_gone:
            raise grpc.aio.InternalError("the caller has ended the call")

    def check_size(self, data: bytes) -> bool:
        """Whether an answer may be sent; otherwise the call ends with RESOURCE_EXHAUSTED."""
        return self._call.check_size(len(data))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send metadata before the first answer. Errors: UsageError if something was sent already."""
        self._raise_if_over()
        if self._call.has_begun:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        self._call.begin(initial_metadata)

    def set_compression(self, compression: grpc.Compression) -> None:
        """Does nothing, because answers are not compressed."""

    def disable_next_message_compression(self) -> None:
        """Does nothing, because answers are not compressed."""

    def _raise_if_over(self) -> None:
        if self.is_aborted:
            raise grpc.aio.AbortError("Locally aborted.")
        if self._call.is_answered and not self._call.is_caller_gone:
            raise grpc.aio.UsageError("RPC already finished.")

    # The end.

    def finish(self, data: bytes | None) -> None:
        """Send the answer, or only the status if it is not OK."""
        self._call.answer(data if self.number == OK else None, self.number, self._details, self._trailing)

    async def end(self) -> None:
        """End the call successfully after all yielded answers, and wait until they are sent.

        No other status can follow. Errors: CancelledError if the caller disconnects meanwhile.
        """
        await self._call.end(OK, self._trailing)

    def done(self) -> bool:
        """Whether no answer can be sent any more."""
        return self._call.is_answered or self._call.is_caller_gone

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` when the answer is sent or given up."""
        self._call.when_over(partial(self._call_back, callback))

    def _call_back(self, callback: Callable[[Any], None]) -> None:
        try:
            callback(self)
        except Exception as error:
            as_ortoo_error(error, "callback of a call")


class Requests:
    """The requests of a stream."""

    def __init__(self, context: H2Context) -> None:
        self._context = context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        request = await self._context.read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return request

"""The grpc.aio context of a call of this transport, for its handler and the layers."""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Self

import grpc

from ortoo.common.grpc.completion_queue.context import OK, QueueCallContext
from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import as_ortoo_error


class H2Context(QueueCallContext):
    """The handler's access to its call, which may be of any kind."""

    _call: Any

    def __init__(
        self, call: H2Call, clock: Clock, read: Callable[[bytes], Any] | None, write: Callable[[Any], bytes] | None
    ) -> None:
        """`read` and `write` convert the messages of a handler that reads and writes by the context."""
        super().__init__(call, clock)  # type: ignore[arg-type]  # it has the same methods
        self._read = read
        self._write = write
        self.is_aborted = False
        """Whether the handler has ended the call by `abort`."""

    @property
    def headers(self) -> dict[str, str]:
        """The text values of the caller's metadata. They are shared with other calls: do not change them."""
        text: dict[str, str] = self._call.headers.text
        return text

    @property
    def waited_s(self) -> float:
        """The time for which the caller already waited before the call was made."""
        waited_s: float = self._call.waited_s
        return waited_s

    def peer(self) -> str:
        """The address of the caller, also of a call without layers."""
        address: str = self._call.peer()
        return address

    def done(self) -> bool:
        """Whether no answer can be sent any more."""
        return bool(self._call.is_answered or self._call.is_caller_gone)

    def cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return bool(self._call.is_caller_gone)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` when the answer is sent or given up."""
        self._call.when_over(partial(self._call_back, callback))

    def _call_back(self, callback: Callable[[Any], None]) -> None:
        try:
            callback(self)
        except Exception as error:
            as_ortoo_error(error, "callback of a call")

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
        return bool(self._call.check_size(len(data)))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send metadata before the first answer. Errors: UsageError if something was sent already."""
        self._raise_if_over()
        if self._call.has_begun:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        self._call.begin(initial_metadata)

    def _raise_if_over(self) -> None:
        if self.is_aborted:
            raise grpc.aio.AbortError("Locally aborted.")
        if self._call.is_answered and not self._call.is_caller_gone:
            raise grpc.aio.UsageError("RPC already finished.")


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

"""The grpc.aio context of a call of the queue front, for its handler and the layers."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn

import grpc

from ortoo.common.errors import Unsupported
from ortoo.common.grpc.completion_queue.core import Metadata, QueueCall
from ortoo.common.grpc.layers.arrival import ARRIVAL, Arrival
from ortoo.common.process.clock import Clock

OK = 0


class QueueCallContext(grpc.aio.ServicerContext[Any, Any]):
    """The handler's access to its call. The answers are the values that the handler returns or yields."""

    def __init__(self, call: QueueCall, clock: Clock) -> None:
        self._call = call
        self.arrival = call.arrival
        """The state of the call since its headers came."""
        self._clock = clock
        self._headers: dict[str, str] | None = None
        self._code: Any = None
        self.number = OK
        """The status that was set."""
        self._details = ""
        self._trailing: Metadata = ()

    @property
    def waited_s(self) -> float:
        """The time for which the caller already waited before the call was made."""
        return 0.0

    def invocation_metadata(self) -> Any:
        """The caller's metadata."""
        return self._call.metadata

    @property
    def headers(self) -> dict[str, str]:
        """The text values of the caller's metadata."""
        if self._headers is None:
            self._headers = {key: value for key, value in self._call.metadata if isinstance(value, str)}
        return self._headers

    async def end(self) -> None:
        """End the call successfully after all yielded answers, and wait until gRPC has taken them.

        No other status can follow. Errors: CancelledError if the caller disconnects meanwhile.
        """
        await self._call.end(OK, self._trailing)

    def peer(self) -> str:
        """The address of the caller."""
        known: str = self.arrival.peer
        return known

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
        """End the call with this status. Errors: AbortError, always."""
        self.set_code(code)
        self._details = details
        self._trailing = tuple(trailing_metadata) or self._trailing
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with this status. Errors: AbortError, always."""
        await self.abort(status.code, status.details or "", status.trailing_metadata or ())

    def cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return self._call.is_caller_gone

    def done(self) -> bool:
        """Whether no answer can be sent any more."""
        return self._call.is_caller_gone

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` when gRPC has released the answer."""
        self._call.when_over(partial(callback, None))

    def finish(self, data: bytes | None) -> None:
        """Send the answer, or only the status if it is not OK."""
        self._call.answer(data if self.number == OK else None, self.number, self._details, self._trailing)

    async def read(self) -> Any:
        """Raises Unsupported, because the one request is the handler's argument."""
        raise Unsupported("a unary call has one request, which is its handler's argument")

    async def write(self, message: Any) -> None:
        """Raises Unsupported, because the handler returns or yields its answers."""
        raise Unsupported("context.write is not supported for this method; return or yield the answers instead")

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Raises Unsupported, because the answer begins when the handler has ended."""
        raise Unsupported("metadata of a call of the queue front is sent with the status")

    def set_compression(self, compression: grpc.Compression) -> None:
        """Does nothing, because answers are small."""

    def disable_next_message_compression(self) -> None:
        """Does nothing, because answers are not compressed."""


def arrival_of(context: grpc.aio.ServicerContext[Any, Any]) -> Arrival | None:
    """The arrival of the current call, from a context of the queue front or of grpc.aio."""
    return getattr(context, "arrival", None) or ARRIVAL.get()


def headers_of(context: grpc.aio.ServicerContext[Any, Any]) -> dict[str, str]:
    """The text values of the caller's metadata, from a context of the queue front or of grpc.aio."""
    known: dict[str, str] | None = getattr(context, "headers", None)  # a check of the class takes longer
    if known is not None:
        return known
    return {str(key): value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
